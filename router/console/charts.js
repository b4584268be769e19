// Small charts of the last minutes, each with its scale.

import { known, make, rate } from "./parts.js";

// One point of a chart stands for this long, and so many are kept.
const POINT_S = 5;
const POINTS = 60;

const history = new Map();

// What the router remembers of the minutes before the page was opened.
export function recall(model, points) {
  history.set(model, points);
}

export const pointsOf = (model) => history.get(model) ?? [];

// Adds the present to the charts; a point is kept once it has stood long enough.
export function remember(state) {
  for (const model of state.models) {
    const points = pointsOf(model.name);
    const last = points.at(-1);
    const stands = last && state.uptime_s - last.from_s < POINT_S;
    if (stands) points.pop();
    points.push({
      from_s: stands ? last.from_s : state.uptime_s,
      attainment: model.recent.attainment,
      served_rps: model.recent.served_rps,
      refused_rps: model.recent.refused_rps,
      waiting: model.dispatch.waiting,
      p99_ms: model.latency.minute.p99_ms,
    });
    history.set(model.name, points.slice(-POINTS));
  }
}

// Lines over the last minutes, the newest at the right, with the ends of the scale beside them.
export function chart(name, lines, { low = 0, high, mark, words = rate } = {}) {
  const all = known(lines.flat());
  const top = high ?? Math.max(1, mark ?? 0, ...all);
  const bottom = Math.min(low, top);
  const scale = top > bottom ? 36 / (top - bottom) : 0;
  const y = (value) => 38 - (Math.max(bottom, Math.min(top, value)) - bottom) * scale;
  const svg = make("svg", { class: "chart", viewBox: `0 0 ${POINTS - 1} 40`, preserveAspectRatio: "none", role: "img" });
  const last = lines.map((line) => known(line).at(-1)).filter((value) => value !== undefined);
  svg.append(make("title", {}, `${name}: ${last.length ? last.map(words).join(", ") : "nothing yet"}`));
  if (mark !== undefined) {
    svg.append(make("line", { x1: 0, x2: POINTS - 1, y1: y(mark), y2: y(mark) }));
  }
  lines.forEach((line, place) => {
    let path = "";
    let drawing = false;
    line.forEach((value, index) => {
      if (value === null || value === undefined) {
        drawing = false;
        return;
      }
      path += `${drawing ? "L" : "M"}${POINTS - line.length + index} ${y(value).toFixed(2)}`;
      drawing = true;
    });
    if (path) svg.append(make("path", { d: path, class: place ? "second" : "first" }));
  });
  const ends = [make("span", { class: "top" }, words(top)), make("span", { class: "bottom" }, words(bottom))];
  return make("figure", {}, make("figcaption", {}, name), make("div", { class: "plot" }, svg, ...ends));
}
