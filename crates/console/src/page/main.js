// The page: asks how things are each second, and shows it.

import { byId, say } from "./dom.js";
import { showDrives } from "./drives.js";
import { beginQueries } from "./query.js";
import { ask, forgetToken, hasToken, keepToken } from "./server.js";
import { showStatements } from "./statements.js";
import { showTraffic } from "./traffic.js";
import { bytes, counted, span } from "./units.js";

/** Milliseconds between two looks; fewer looks while nobody sees the page. */
const INTERVAL = 1000;
const INTERVAL_HIDDEN = 10000;
let timer = null;

function show(state) {
  const drives = state.drives.filter((drive) => drive.is_up).length;
  const facts = [
    drives === state.drives.length ? counted(drives, "drive") : `${drives} of ${counted(state.drives.length, "drive")}`,
    counted(state.threads, "thread"),
    `${bytes(state.memory_bytes)} memory`,
    `up ${span(state.uptime_s)}`,
    `release ${state.release}`,
  ];
  say(byId("facts"), facts.join(" · "));
  const { name, is_named: isNamed, sees_all: seesAll } = state.caller;
  say(byId("caller"), isNamed ? `${name}${seesAll ? "" : " (sees its own statements)"}` : "anyone may call");
  showTraffic(state);
  showDrives(state);
  showStatements(state);
}

async function look() {
  clearTimeout(timer);
  let wait = document.hidden ? INTERVAL_HIDDEN : INTERVAL;
  try {
    const state = await ask("/api/state");
    enter(true);
    show(state);
    byId("lost").hidden = true;
  } catch (error) {
    if (error.status === 401) {
      enter(false, hasToken() ? error.message : "");
      return;
    }
    say(byId("facts"), "not connected");
    say(byId("lost"), error.status ? error.message : "The server does not answer. What is shown is what it said last.");
    byId("lost").hidden = false;
    wait *= 2;
  }
  timer = setTimeout(look, wait);
}

/** Whether the server knows who looks. If not, it is asked who that is. */
function enter(isKnown, why = "") {
  if (!isKnown) forgetToken();
  byId("main").hidden = !isKnown;
  byId("leave").hidden = !isKnown || !hasToken();
  if (isKnown) {
    byId("entry").hidden = true;
    return;
  }
  say(byId("facts"), "");
  say(byId("caller"), "");
  say(byId("entry-fault"), why);
  byId("lost").hidden = true;
  byId("entry").hidden = false;
  byId("token").value = "";
  byId("token").focus();
}

byId("entry").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken(byId("token").value.trim());
  look();
});
byId("leave").addEventListener("click", () => {
  forgetToken();
  location.reload();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && byId("entry").hidden) look();
});
beginQueries();
look();
