// The query box: runs statements as any client's, and shows their first rows, or where they are wrong.

import { byId, element, say } from "./dom.js";
import { ask } from "./server.js";
import { shownWhole } from "./statements.js";
import { count, counted, seconds } from "./units.js";

/** How the engine says at which place of a statement something is wrong. */
const PLACE = /\s*at Line: (\d+), Column: (\d+)/;
/** Stops what runs. */
let running = null;

export function beginQueries() {
  const sql = byId("sql");
  byId("query").addEventListener("submit", (event) => {
    event.preventDefault();
    run(sql.value);
  });
  sql.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    run(sql.value);
  });
  byId("stop").addEventListener("click", () => running?.abort());
}

async function run(sql) {
  if (running || sql.trim() === "") return;
  running = new AbortController();
  byId("run").disabled = true;
  byId("stop").disabled = false;
  const began = performance.now();
  const tick = () => say(byId("query-state"), `runs for ${seconds((performance.now() - began) / 1000)}`);
  const clock = setInterval(tick, 200);
  tick();
  let shown;
  try {
    shown = await shownAnswer(await ask("/api/query", { sql }, running.signal), sql);
  } catch (error) {
    const isStopped = error.name === "AbortError";
    shown = [isStopped ? element("p", { class: "quiet" }, "stopped; its work at the drives is ended") : fault(error)];
  }
  clearInterval(clock);
  say(byId("query-state"), "");
  byId("results").replaceChildren(...shown);
  byId("stop").disabled = true;
  byId("run").disabled = false;
  running = null;
}

async function shownAnswer(answer, sql) {
  const shown = answer.results.map(result);
  if (answer.error) shown.push(fault(answer.error, sql));
  if (shown.length === 0) shown.push(element("p", { class: "quiet" }, "no statement"));
  const last = answer.results.at(-1);
  // Its cut is drawn below its rows. Where many others ended since then, it is not kept any more.
  if (!answer.error && last?.is_query && last.id) shown.push(await shownWhole(last.id).catch(() => ""));
  return shown;
}

function result(result) {
  const node = element("div", { class: "result" });
  if (result.is_query) node.append(result.columns.length === 1 && result.columns[0].name === "plan" ? plan(result) : table(result));
  node.append(element("p", { class: "quiet" }, `${said(result)}, in ${seconds(result.seconds)}`));
  return node;
}

function said(result) {
  if (!result.is_query) return result.changed === null ? "done" : `${counted(result.changed, "row")} changed`;
  return result.has_more ? `the first ${counted(result.rows.length, "row")} of more` : counted(result.rows.length, "row");
}

/** What EXPLAIN gives is lines of one text. */
function plan(result) {
  return element("pre", {}, result.rows.map(([line]) => line).join("\n"));
}

function table({ columns, rows }) {
  const side = (index) => (columns[index].is_number ? "number" : null);
  const head = columns.map((column, index) => element("th", { scope: "col", class: side(index), title: column.type }, column.name));
  const cell = (value, index) =>
    value === null ? element("td", { class: "null" }, "NULL") : element("td", { class: side(index) }, String(value));
  const body = rows.map((row) => element("tr", {}, ...row.map(cell)));
  const whole = element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
  return element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "rows" }, whole);
}

/** An error, with the place underlined where it says one. */
function fault(error, sql = "") {
  const node = element("div", { class: "fault", role: "alert" });
  const place = error.message.match(PLACE);
  const message = place ? error.message.replace(PLACE, "") : error.message;
  node.append(element("p", {}, `${error.blame ?? "error"}: ${message}`));
  if (place) node.append(...underlined(sql, error.begins ?? 0, Number(place[1]), Number(place[2])));
  if (error.hint) node.append(element("p", {}, `hint: ${error.hint}`));
  return node;
}

/** The line of the text where something is wrong, and a mark below the place. Places are counted in characters from the statement on. */
function underlined(sql, begins, line, column) {
  const characters = Array.from(sql);
  const before = characters.slice(0, begins).join("").split("\n");
  const lines = sql.split("\n");
  const at = before.length - 1 + line - 1;
  const indent = line === 1 ? Array.from(before.at(-1)).length : 0;
  const text = lines[at];
  if (text === undefined) return [];
  const column0 = indent + column - 1;
  const word = Array.from(text).slice(column0).join("").match(/^[\p{L}\p{N}_]+/u);
  const mark = " ".repeat(column0) + "^".repeat(Math.max(1, word ? Array.from(word[0]).length : 1));
  return [element("pre", {}, `${count(at + 1).padStart(3)} │ ${text}\n    │ ${mark}`)];
}
