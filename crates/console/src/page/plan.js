// A plan drawn as it is cut: what the host runs above the link, what the drives run below it, and between them what travels.

import { element, shape } from "./dom.js";
import { bytes, count, counted, levels, stayed, travelled } from "./units.js";

// In pixels: a node, the room between nodes, and the pill of a sub-plan on the link.
const [NODE_WIDTH, NODE_HEIGHT, GAP, STEP] = [220, 38, 18, 56];
const [PILL_HEIGHT, BAND, SIDE] = [56, 26, 78];
/** Characters that fit into a node's line. */
const CHARACTERS = 30;

/** A plan's lines, as the server gives them, as a picture for each query in it, and as text. */
export function drawPlan(lines, isInProcess) {
  const node = element("div", { class: "plan" });
  for (const { title, root } of pictures(trees(lines))) {
    const figure = element("div", { class: "figure" }, title ? element("h4", {}, title) : null);
    const scroll = element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": title || "the plan, drawn" });
    scroll.append(picture(root, isInProcess));
    figure.append(scroll);
    node.append(figure);
  }
  const text = lines.map((line) => line.site.padEnd(6) + "  ".repeat(line.depth) + line.text).join("\n");
  node.append(element("details", {}, element("summary", {}, "The plan as text, as EXPLAIN ANALYZE shows it"), element("pre", {}, text)));
  return node;
}

/** Trees of the lines: each line is below the nearest one before it that is less deep. */
function trees(lines) {
  const roots = [];
  const path = [];
  for (const line of lines) {
    const node = { ...line, children: [] };
    path.length = Math.min(path.length, line.depth);
    (path.at(-1)?.children ?? roots).push(node);
    path.push(node);
  }
  return roots;
}

/** Whether a remark is the title of a query that comes below it. */
function isTitle(node) {
  return node.site === "" && node.children.some((child) => child.site === "host" || child.site === "link" || isTitle(child));
}

/** One picture for the query itself, which comes first, and one for each query that was computed for it. */
function pictures(roots) {
  const main = [];
  const others = [];
  for (const node of roots) {
    if (isTitle(node)) others.push(...pictures(node.children).map((each) => ({ ...each, title: each.title || node.text })));
    else if (node.site === "host" || node.site === "link") main.push(node);
  }
  for (const root of main) others.push(...shipped(root));
  return [...main.map((root) => ({ title: "", root })), ...others];
}

/** The queries of tables that are sent to the drives with sub-plans. */
function shipped(node) {
  const found = [];
  for (const child of node.children) {
    if (isShipped(child)) found.push(...pictures(child.children).map((each) => ({ ...each, title: each.title || child.text })));
    else found.push(...shipped(child));
  }
  return found;
}

const isShipped = (node) => node.site === "link" && !node.figures;
const drawn = (node) => node.children.filter((child) => child.site === "host" || child.site === "drive" || (child.site === "link" && child.figures));

function picture(root, isInProcess) {
  const hosts = hostDepth(root, 0);
  const cut = BAND + hosts * STEP + PILL_HEIGHT / 2 + (hosts ? 4 : 14);
  const below = cut + PILL_HEIGHT / 2 + GAP;
  const places = [];
  const lines = [];
  let columns = 0;
  let bottom = below;

  // Leaves get columns from the left; what is above stands in the middle of what is below it.
  function place(node, depth, isBelow) {
    const kind = node.site === "link" ? "pill" : node.site;
    const isHere = isBelow || kind === "pill";
    const y = kind === "pill" ? cut - PILL_HEIGHT / 2 : isBelow ? below + depth * STEP : BAND + depth * STEP;
    const inner = drawn(node).map((child) => place(child, kind === "pill" ? 0 : depth + 1, isHere));
    const x = inner.length ? (inner[0].x + inner.at(-1).x) / 2 : SIDE + columns++ * (NODE_WIDTH + GAP);
    const here = { node, kind, x, y };
    places.push(here);
    if (isBelow) bottom = Math.max(bottom, y + NODE_HEIGHT + 8);
    for (const child of inner) lines.push({ from: here, to: child });
    return here;
  }

  place(root, 0, false);
  const width = SIDE + columns * (NODE_WIDTH + GAP);
  const height = Math.max(bottom, cut + PILL_HEIGHT / 2 + GAP);
  const drawing = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": summary(places, isInProcess) });
  drawing.append(
    shape("rect", { width, height: cut, class: "zone host" }),
    shape("rect", { y: cut, width, height: height - cut, class: "zone drive" }),
    shape("line", { x2: width, y1: cut, y2: cut, class: "cut" }),
    shape("text", { x: 8, y: 17, class: "zone-name" }, "host"),
    shape("text", { x: 8, y: cut - 6, class: "zone-name" }, isInProcess ? "the cut" : "the link"),
    shape("text", { x: 8, y: cut + 18, class: "zone-name" }, "drives"),
    ...lines.map((line) => edge(line, isInProcess)),
    ...places.map((each) => (each.kind === "pill" ? pill(each, isInProcess) : box(each))),
  );
  return drawing;
}

/** How many operators are above one another at the host. */
function hostDepth(node, depth) {
  if (node.site !== "host") return depth;
  return Math.max(depth + 1, ...drawn(node).map((child) => hostDepth(child, depth + 1)));
}

function summary(places, isInProcess) {
  const at = (kind) => places.filter((each) => each.kind === kind);
  const travels = at("pill").map(({ node }) => bytes(travelled(node.figures, isInProcess)));
  return `${counted(at("host").length, "operator")} at the host, ${counted(at("drive").length, "operator")} at drives; ${travels.join(", ")} travelled`;
}

/** The more bytes travel, the broader; within the host and within drives nothing does. */
function edge({ from, to }, isInProcess) {
  const tall = (place) => (place.kind === "pill" ? PILL_HEIGHT : NODE_HEIGHT);
  const [x1, y1, x2, y2] = [from.x + NODE_WIDTH / 2, from.y + tall(from), to.x + NODE_WIDTH / 2, to.y];
  const middle = (y1 + y2) / 2;
  const crosses = to.kind === "pill";
  const moved = crosses ? travelled(to.node.figures, isInProcess) : 0;
  const broad = crosses ? Math.min(14, 1.5 + Math.log10(1 + moved / 1000) * 2) : 1.5;
  return shape("path", { d: `M${x1} ${y1}C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}`, class: crosses ? "edge travels" : "edge", "stroke-width": broad });
}

function box({ node, kind, x, y }) {
  const [first, rest] = halves(node.text);
  return shape(
    "g",
    { class: `node ${kind}`, transform: `translate(${x} ${y})` },
    shape("title", {}, node.text),
    shape("rect", { width: NODE_WIDTH, height: NODE_HEIGHT, rx: 5 }),
    shape("text", { x: 8, y: rest ? 16 : 23, class: "operator" }, fitted(first)),
    shape("text", { x: 8, y: 30, class: "details" }, fitted(rest)),
  );
}

/** A sub-plan, on the cut: what its drives read, and the part of it that travelled. */
function pill({ node, x, y }, isInProcess) {
  const figures = node.figures;
  const [stay, travel] = [stayed(figures, isInProcess), travelled(figures, isInProcess)];
  const part = figures.read_bytes > 0 ? Math.min(1, travel / figures.read_bytes) : 0;
  const inner = NODE_WIDTH - 16;
  const head = `${figures.dataset} · ${counted(figures.drives, "drive")} · ${levels(figures.levels) || "no round"}`;
  return shape(
    "g",
    { class: "node pill", transform: `translate(${x} ${y})` },
    shape("title", {}, `${node.text}; ${bytes(figures.read_bytes)} read, ${bytes(stay)} stayed, ${bytes(travel)} travelled`),
    shape("rect", { width: NODE_WIDTH, height: PILL_HEIGHT, rx: 8, class: "back" }),
    shape("text", { x: 8, y: 16, class: "operator" }, fitted(head)),
    shape("rect", { x: 8, y: 22, width: inner, height: 7, class: figures.read_bytes > 0 ? "stayed" : "room" }),
    shape("rect", { x: 8, y: 22, width: part > 0 ? Math.max(1.5, part * inner) : 0, height: 7, class: "travelled" }),
    shape("text", { x: 8, y: 45, class: "details" }, fitted(`${bytes(figures.read_bytes)} read, ${bytes(travel)} up, ${count(figures.rows)} rows`)),
  );
}

/** An operator's name, and what it does. */
function halves(text) {
  const at = text.indexOf(": ");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 2)];
}

function fitted(text) {
  return text.length > CHARACTERS ? `${text.slice(0, CHARACTERS - 1)}…` : text;
}
