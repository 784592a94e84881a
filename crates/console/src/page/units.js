// Quantities as people read them, as the command line writes them.

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];

export function bytes(count) {
  let unit = 0;
  let value = count;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return unit === 0 ? `${Math.round(value)} B` : `${value.toFixed(value < 100 ? 1 : 0)} ${UNITS[unit]}`;
}

export function seconds(time) {
  if (time < 1) return `${(time * 1000).toFixed(time < 0.01 ? 1 : 0)} ms`;
  if (time < 100) return `${time.toFixed(1)} s`;
  return span(time);
}

/** A time of which nobody wants fractions. */
export function span(time) {
  if (time < 60) return `${Math.floor(time)} s`;
  if (time < 3600) return `${Math.floor(time / 60)} min`;
  if (time < 86400) return `${Math.floor(time / 3600)} h`;
  return `${Math.floor(time / 86400)} d`;
}

export function count(number) {
  return String(Math.round(number)).replace(/\B(?=(\d{3})+$)/g, ",");
}

export function counted(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

export function share(part, whole) {
  if (whole <= 0) return "–";
  const percent = (100 * part) / whole;
  if (percent > 99.9 && part < whole) return "99.9 %";
  return `${percent.toFixed(percent === 0 || percent >= 99.95 ? 0 : 1)} %`;
}

export function joules(energy) {
  return energy < 0.1 ? `${(energy * 1000).toFixed(1)} mJ` : `${energy.toFixed(energy < 100 ? 1 : 0)} J`;
}

export function levels(pair) {
  if (!pair) return "";
  return pair[0] === pair[1] ? `level ${pair[0]}` : `levels ${pair[0]}–${pair[1]}`;
}

/** Of some figures, the bytes that came from the drives: over links, or within one process as the drives handed them on. */
export function travelled(figures, isInProcess) {
  return isInProcess ? figures.handed_bytes : figures.link_bytes;
}

/** Of what drives read, what did not travel. */
export function stayed(figures, isInProcess) {
  return Math.max(0, figures.read_bytes - travelled(figures, isInProcess));
}
