// What drives read and what of it travelled: sums, and the last minutes as a chart.

import { byId, element, say, shape } from "./dom.js";
import { bytes, count, joules, share, stayed, travelled } from "./units.js";

/** Points of the chart, one a second or so: as many at most, and room for so many at least. */
const POINTS = 240;
const POINTS_MIN = 60;
const WIDTH = 720;
const HEIGHT = 120;

/** The last moments: when, and bytes a second that were read and that travelled. */
const points = [];
let last = null;
const view = {};

export function showTraffic(state) {
  if (!view.bar) build();
  const sums = state.totals;
  const [stay, travel] = [stayed(sums, state.is_in_process), travelled(sums, state.is_in_process)];
  const all = Math.max(sums.read_bytes, 1);
  say(view.share, sums.read_bytes > 0 ? share(stay, sums.read_bytes) : "–");
  say(view.stayed, bytes(stay));
  say(view.travelled, bytes(travel));
  say(view.read, bytes(sums.read_bytes));
  say(view.how, state.is_in_process ? "handed on in this process" : "travelled");
  say(view.more, `${count(sums.statements)} statements · ${count(sums.rows)} rows to clients${energy(sums)}`);
  view.bar.setAttribute("width", String((100 * Math.min(travel, all)) / all));
  add(state.now_ms, sums.read_bytes, travel);
  draw(state.is_in_process);
}

function energy(sums) {
  return sums.joules === null ? "" : ` · ${joules(sums.joules)} emulated`;
}

function build() {
  for (const name of ["share", "stayed", "travelled", "read", "how", "more"]) view[name] = element("span");
  view.bar = shape("rect", { width: 0, height: 4, class: "travelled" });
  const bar = shape("svg", { viewBox: "0 0 100 4", preserveAspectRatio: "none", class: "bar", "aria-hidden": "true" });
  bar.append(shape("rect", { width: 100, height: 4, class: "stayed" }), view.bar);
  view.share.className = "big";
  byId("traffic-sums").append(
    element("p", {}, view.share, " of what drives read stayed there"),
    bar,
    element("p", { class: "legend" }, mark("stayed"), view.stayed, " stayed  ", mark("travelled"), view.travelled, " ", view.how),
    element("p", { class: "quiet" }, view.read, " read · ", view.more),
  );
}

function mark(kind) {
  return element("i", { class: `mark ${kind}` });
}

function add(now, read, travel) {
  if (last && now > last.now) {
    const time = (now - last.now) / 1000;
    const rate = (value, before) => Math.max(0, value - before) / time;
    points.push({ now, read: rate(read, last.read), travel: rate(travel, last.travel) });
    if (points.length > POINTS) points.shift();
  }
  last = { now, read, travel };
}

function draw(isInProcess) {
  const top = Math.max(1, ...points.map((point) => Math.max(point.read, point.travel)));
  const step = WIDTH / (Math.max(points.length, POINTS_MIN) - 1);
  const x = (index) => WIDTH - (points.length - 1 - index) * step;
  const y = (rate) => HEIGHT - (rate / top) * (HEIGHT - 16);
  const line = (of) => points.map((point, index) => `${index ? "L" : "M"}${x(index).toFixed(1)} ${y(of(point)).toFixed(1)}`).join("");
  const area = (path) => (points.length ? `${path}L${WIDTH} ${HEIGHT}L${x(0).toFixed(1)} ${HEIGHT}Z` : "");
  const [read, travel] = [line((point) => point.read), line((point) => point.travel)];
  const now = points.at(-1) ?? { read: 0, travel: 0 };
  const label = `${bytes(now.read)}/s read, ${bytes(now.travel)}/s ${isInProcess ? "handed on" : "travel"}`;
  const picture = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `The last minutes; now ${label}` });
  picture.append(
    shape("path", { d: area(read), class: "read area" }),
    shape("path", { d: read, class: "read line" }),
    shape("path", { d: area(travel), class: "travel area" }),
    shape("path", { d: travel, class: "travel line" }),
    shape("line", { x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5, class: "axis" }),
    shape("text", { x: 0, y: 11 }, points.length ? `${bytes(top)}/s` : "the last minutes, as they come"),
  );
  byId("traffic-chart").replaceChildren(picture, element("figcaption", { class: "quiet" }, `now ${label}`));
}
