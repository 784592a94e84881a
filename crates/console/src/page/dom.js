// Elements from names, attributes and children. Texts are only ever put in as texts, never as markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element. Attributes that begin with "on" are listeners; those that are null, undefined or false are left out. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same within a picture. */
export function shape(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Sets a node's text if it is another one, so that what a person has selected stays selected. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export const byId = (id) => document.getElementById(id);

/**
 * Keeps one child of a node for each item, in the order of the items: `make(item)` gives the child of a new one, `renew(child, item)`
 * tells a child what is new. Children that stay are not touched otherwise, so that focus and selection stay, too.
 */
export function keyed(parent, children, items, key, make, renew) {
  const names = new Set(items.map(key));
  for (const [name, child] of children) {
    if (names.has(name)) continue;
    child.remove();
    children.delete(name);
  }
  let before = parent.firstChild;
  for (const item of items) {
    const name = key(item);
    if (!children.has(name)) children.set(name, make(item));
    const child = children.get(name);
    renew(child, item);
    if (child === before) before = before.nextSibling;
    else parent.insertBefore(child, before);
  }
}
