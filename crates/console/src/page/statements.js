// Statements that run and that ran lately: a line each, and on demand the whole of one with its cut drawn.

import { byId, element, keyed, say, shape } from "./dom.js";
import { drawPlan } from "./plan.js";
import { Refused, ask } from "./server.js";
import { bytes, count, joules, levels, seconds, share, stayed, travelled } from "./units.js";

const OUTCOMES = { ok: "done", cancelled: "cancelled", user: "refused", access: "not allowed" };
const lists = { running: new Map(), recent: new Map() };

/** The statement that is shown whole, by its number, and what was shown of it last. */
let opened = null;
let isInProcess = false;

export function showStatements(state) {
  isInProcess = state.is_in_process;
  say(byId("running-count"), count(state.running_count));
  for (const name of ["running", "recent"]) {
    keyed(byId(name), lists[name], state[name], (statement) => statement.id, make, renew);
    byId(name).dataset.empty = state[name].length ? "" : name === "running" ? "nothing runs" : "nothing ran yet";
  }
  // One that runs changes; one that has ended since then is shown once more.
  if (opened && opened.isLive) load(opened);
}

/** A statement's cut drawn, with what it cost. */
export async function shownWhole(id) {
  return whole(await ask(`/api/statements/${id}`), false);
}

function make(statement) {
  const row = element("article", { class: "statement" });
  const part = (name, tag = "span", attributes = {}) => element(tag, { "data-part": name, ...attributes });
  const text = part("text", "button", { type: "button", class: "text", "aria-expanded": "false" });
  text.addEventListener("click", () => toggle(statement.id));
  const cancel = part("cancel", "button", { type: "button", hidden: true });
  say(cancel, "Cancel");
  cancel.addEventListener("click", () => end(statement.id, cancel));
  row.append(part("outcome"), text, part("user"), part("time"), part("rows"), part("cut"), cancel, part("whole", "div"));
  return row;
}

function renew(row, statement) {
  const part = (name) => row.querySelector(`[data-part=${name}]`);
  const runs = statement.outcome === null;
  const state = runs ? (statement.is_cancelled ? "ending" : "runs") : (OUTCOMES[statement.outcome] ?? "failed");
  row.dataset.state = runs ? "runs" : statement.outcome === "ok" ? "ok" : statement.fault ? "failed" : "left";
  say(part("outcome"), row.dataset.state === "left" ? "ended early" : state);
  part("outcome").title = statement.fault ?? "";
  say(part("text"), statement.sql);
  say(part("user"), statement.user ?? "this host");
  say(part("time"), seconds(statement.seconds));
  say(part("rows"), `${count(statement.rows)} row${statement.rows === 1 ? "" : "s"}`);
  showCut(part("cut"), statement);
  part("cancel").hidden = !statement.may_cancel;
  const isOpen = opened?.id === statement.id;
  part("text").setAttribute("aria-expanded", String(isOpen));
  if (!isOpen) part("whole").replaceChildren();
  else if (part("whole").firstChild !== opened.shown && opened.shown) part("whole").replaceChildren(opened.shown);
}

/** What of a statement stayed at the drives, as a bar and in words. */
function showCut(node, statement) {
  const [stay, travel] = [stayed(statement, isInProcess), travelled(statement, isInProcess)];
  const key = `${statement.read_bytes} ${travel} ${isInProcess} ${statement.joules}`;
  if (node.dataset.key === key) return;
  node.dataset.key = key;
  if (statement.read_bytes === 0) {
    const words = travel > 0 ? `${bytes(travel)} travelled` : statement.sub_plans > 0 ? "nothing read" : "";
    node.replaceChildren(element("span", { class: "quiet" }, words));
    return;
  }
  const width = Math.min(100, (100 * travel) / statement.read_bytes);
  const bar = shape("svg", { viewBox: "0 0 100 4", preserveAspectRatio: "none", class: "bar", "aria-hidden": "true" });
  bar.append(shape("rect", { width: 100, height: 4, class: "stayed" }), shape("rect", { width, height: 4, class: "travelled" }));
  const energy = statement.joules === null ? "" : ` · ${joules(statement.joules)}`;
  const words = `${share(stay, statement.read_bytes)} of ${bytes(statement.read_bytes)} stayed, ${bytes(travel)} travelled${energy}`;
  node.replaceChildren(bar, element("span", {}, words));
}

function toggle(id) {
  opened = opened?.id === id ? null : { id, isLive: true, shown: null };
  if (opened) load(opened);
  for (const list of Object.values(lists)) {
    const row = list.get(id);
    row?.querySelector("[data-part=text]").setAttribute("aria-expanded", String(opened?.id === id));
    if (opened?.id !== id) row?.querySelector("[data-part=whole]").replaceChildren();
  }
}

async function end(id, button) {
  button.disabled = true;
  try {
    const { cancelled } = await ask("/api/cancel", { id });
    // One that has ended meanwhile loses its button with the next look.
    if (!cancelled) {
      say(button, "Too late");
      button.title = "it has sent what it changes, and goes on";
    }
  } catch (error) {
    button.title = error.message;
  }
  button.disabled = false;
}

async function load(wanted) {
  if (wanted.isLoading) return;
  wanted.isLoading = true;
  try {
    const statement = await ask(`/api/statements/${wanted.id}`);
    if (opened !== wanted) return;
    wanted.isLive = statement.outcome === null;
    wanted.shown = whole(statement, true);
    const row = lists.running.get(wanted.id) ?? lists.recent.get(wanted.id);
    row?.querySelector("[data-part=whole]").replaceChildren(wanted.shown);
  } catch (error) {
    // It is none of the last ones any more, or the connection is lost: the next look says so.
    if (error instanceof Refused) wanted.isLive = false;
  } finally {
    wanted.isLoading = false;
  }
}

function whole(statement, hasText) {
  const facts = [
    levels(statement.levels),
    `${count(statement.slices_read)} slices read, ${count(statement.slices_skipped)} skipped`,
    `${count(statement.rows_from_drives)} rows from drives`,
    `${seconds(statement.drive_cpu_s)} CPU at drives`,
    statement.joules === null ? "" : `${joules(statement.joules)} emulated`,
    `statement ${statement.id}, ${new Date(statement.began_ms).toLocaleString()}`,
  ];
  const node = element("div", { class: "whole" });
  if (hasText) node.append(element("pre", { class: "sql" }, statement.sql));
  if (statement.fault) node.append(element("p", { class: "fault" }, statement.fault));
  node.append(element("p", { class: "quiet" }, facts.filter(Boolean).join(" · ")));
  if (statement.plan.length) node.append(drawPlan(statement.plan, isInProcess));
  else node.append(element("p", { class: "quiet" }, statement.outcome === null ? "it is being planned" : "it has no plan to draw"));
  return node;
}
