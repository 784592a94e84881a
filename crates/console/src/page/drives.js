// The drives: how full, how busy, with how many sessions.

import { byId, element, keyed, say, shape } from "./dom.js";
import { bytes, counted, share, span } from "./units.js";

const POINTS = 30;
const cards = new Map();

/** Of a drive by its label: what it read at the last moments, bytes a second. */
const histories = new Map();

export function showDrives(state) {
  remember(state);
  keyed(byId("drives"), cards, state.drives, (drive) => drive.label, make, renew);
}

function remember(state) {
  for (const drive of state.drives.filter((each) => each.is_up)) {
    const history = histories.get(drive.label) ?? { rates: [], now: null, read: 0 };
    if (history.now !== null && state.now_ms > history.now) {
      history.rates.push((1000 * Math.max(0, drive.read_bytes - history.read)) / (state.now_ms - history.now));
      if (history.rates.length > POINTS) history.rates.shift();
    }
    Object.assign(history, { now: state.now_ms, read: drive.read_bytes });
    histories.set(drive.label, history);
  }
}

function make(drive) {
  const card = element("article", { class: "drive" });
  const part = (name, tag = "p") => element(tag, { "data-part": name });
  card.append(part("name", "h3"), part("state"), part("full", "div"), part("cores", "div"), part("rate", "div"), part("more"));
  say(card.querySelector("h3"), drive.label);
  return card;
}

function renew(card, drive) {
  const part = (name) => card.querySelector(`[data-part=${name}]`);
  card.classList.toggle("down", !drive.is_up);
  if (!drive.is_up) {
    say(part("state"), `not reached: ${drive.fault}`);
    for (const name of ["full", "cores", "rate", "more"]) part(name).replaceChildren();
    return;
  }
  const services = drive.services.map((service) => `${service.name} ${service.activity}`);
  say(part("state"), [counted(drive.sessions, "session"), ...services].join(" · "));
  const room = drive.stored_bytes + drive.free_bytes;
  part("full").replaceChildren(
    meter(drive.stored_bytes / Math.max(room, 1), "stored"),
    element("span", { class: "quiet" }, `${bytes(drive.stored_bytes)} stored, ${bytes(drive.free_bytes)} free`),
  );
  part("cores").replaceChildren(...cores(drive));
  part("rate").replaceChildren(...rate(drive));
  const memory = `${bytes(drive.reserved_bytes)} of ${bytes(drive.memory_bytes)} reserved`;
  say(part("more"), `${counted(drive.threads, "thread")} · ${memory} · up ${span(drive.uptime_s)} · ${drive.release}`);
}

function meter(part, kind) {
  const bar = shape("svg", { viewBox: "0 0 100 4", preserveAspectRatio: "none", class: "bar", "aria-hidden": "true" });
  const width = Math.min(100, Math.max(part > 0 ? 1 : 0, 100 * part));
  bar.append(shape("rect", { width: 100, height: 4, class: "room" }), shape("rect", { width, height: 4, class: kind }));
  return bar;
}

/** A column for each core: what it does for queries, and above it what it does behind the scenes. */
function cores(drive) {
  if (!drive.cores || drive.cores.length === 0) return [];
  const [width, height] = [9, 28];
  const busy = drive.cores.reduce((sum, [foreground, background]) => sum + foreground + background, 0) / drive.cores.length;
  const label = `cores ${share(busy, 1)} busy`;
  const picture = shape("svg", { width: drive.cores.length * width, height, role: "img", "aria-label": label });
  drive.cores.forEach(([foreground, background], index) => {
    const [front, back] = [foreground, background].map((part) => Math.min(1, Math.max(0, part)) * height);
    const at = { x: index * width, width: width - 2 };
    picture.append(
      shape("rect", { ...at, y: 0, height, class: "room" }),
      shape("rect", { ...at, y: height - front, height: front, class: "foreground" }),
      shape("rect", { ...at, y: Math.max(0, height - front - back), height: Math.min(back, height - front), class: "background" }),
    );
  });
  return [picture, element("span", { class: "quiet" }, label)];
}

function rate(drive) {
  const rates = histories.get(drive.label)?.rates ?? [];
  const [width, height] = [120, 28];
  const top = Math.max(1, ...rates);
  const x = (index) => (width - ((rates.length - 1 - index) * width) / (POINTS - 1)).toFixed(1);
  const y = (value) => (height - 1 - (value / top) * (height - 3)).toFixed(1);
  const path = rates.map((value, index) => `${index ? "L" : "M"}${x(index)} ${y(value)}`).join("");
  const picture = shape("svg", { width, height, "aria-hidden": "true" }, shape("path", { d: path, class: "read line" }));
  return [picture, element("span", { class: "quiet" }, `${bytes(rates.at(-1) ?? 0)}/s read`)];
}
