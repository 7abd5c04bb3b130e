// Plots as SVG: bars, points and amounts over time. The numbers behind each are under the pointer, and under the keys.

import { element } from "./panel.js";
import { short, svg } from "./draw.js";
import { brief, farApart, linear, logarithmic, said } from "./scales.js";

/** @typedef {import("./scales.js").Scale} Scale */
/** @typedef {{title: string, unit: string, names: string[], series: [string, (number | null)[]][], links: (number | null)[]}} Bars */
/** @typedef {{name: string, points: [number, number, string][], joined: boolean}} Cloud */
/** @typedef {{title: string, x: string, y: string, clouds: Cloud[]}} Points */
/** @typedef {{title: string, x: string, unit: string, edges: number[], series: [string, number[]][], labels: string[],
 *   spans: [string, number, number][], apart: boolean, top: number, most: [string, number] | null}} Steps */
/** @typedef {{title: string, x: string, unit: string, at: number[], series: [string, (number | null)[]][]}} Curves */
/** Where the keys go, the text shown there, and what it leads to.
 * @typedef {{x: number, y: number, lines: string[], go?: () => void}} Stop */

const LEFT = 62;
const RIGHT = 16;
const TOP = 10;
const WIDE = 960;
const HIGH = 240;
const ROOM = 14; // characters of a name under a bar, where that tells it from the others
const MOST = 44; // of one that has to stand upright

/** A plot in its frame: a sentence of what one points at goes below it.
 * @param {string} title @param {number} width @param {number} height */
function frame(title, width, height) {
  const picture = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": title });
  const tip = element("div", "tip");
  tip.hidden = true;
  const live = element("p", "unseen");
  live.setAttribute("role", "status");
  const holder = element("div", "plot", picture, tip);
  holder.style.width = `${width}px`;
  const all = element("figure", "", element("figcaption", "", title), element("div", "wide", holder), live);
  return { picture, tip, live, holder, all };
}

/** Tell a stop at the pointer, or by the keys. @param {ReturnType<typeof frame>} made @param {Stop[]} stops
 * @param {{nearest: (x: number, y: number) => number, width: number, height: number}} how */
function tell(made, stops, { nearest, width, height }) {
  let at = -1;
  const mark = svg("line", { class: "mark", y1: TOP, y2: height - 4 });
  mark.style.display = "none";
  made.picture.append(mark);
  /** @param {number} next */
  const show = (next) => {
    at = next;
    const stop = stops[at];
    made.tip.hidden = !stop;
    mark.style.display = stop ? "" : "none";
    if (!stop) return;
    made.tip.replaceChildren(...stop.lines.map((text, i) => element("div", i ? "" : "name", text)));
    mark.setAttribute("x1", String(stop.x));
    mark.setAttribute("x2", String(stop.x));
    const right = stop.x > width * 0.6;
    made.tip.style.left = right ? "" : `${(100 * stop.x) / width}%`;
    made.tip.style.right = right ? `${100 - (100 * stop.x) / width}%` : "";
    made.tip.style.top = `${(100 * Math.min(stop.y, height * 0.6)) / height}%`;
  };
  made.picture.addEventListener("pointermove", (event) => {
    if (!(event instanceof PointerEvent) || !stops.length) return;
    const place = made.picture.getBoundingClientRect();
    show(nearest(((event.clientX - place.left) * width) / place.width, ((event.clientY - place.top) * height) / place.height));
  });
  made.picture.addEventListener("pointerleave", () => show(-1));
  made.picture.addEventListener("blur", () => show(-1));
  made.picture.addEventListener("click", () => stops[at]?.go?.());
  made.picture.addEventListener("keydown", (event) => {
    if (!(event instanceof KeyboardEvent) || !stops.length) return;
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (step) show((at + step + (at < 0 && step < 0 ? 1 : 0) + stops.length) % stops.length);
    else if (event.key === "Enter") stops[at]?.go?.();
    else return;
    made.live.textContent = stops[at]?.lines.join(", ") ?? "";
    event.preventDefault();
    event.stopPropagation();
  });
}

/** Round numbers along the left side. @param {Element} picture @param {Scale} scale
 * @param {{top: number, height: number, width: number, unit: string}} where */
function rules(picture, scale, { top, height, width, unit }) {
  for (const tick of scale.ticks) {
    const y = top + height * (1 - scale.place(tick));
    if (y < top - 1) continue;
    picture.append(svg("line", { class: "rule", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }));
    picture.append(svg("text", { class: "tick", x: LEFT - 6, y: y + 4, "text-anchor": "end" }, brief(tick)));
  }
  const middle = top + height / 2;
  picture.append(svg("text", { class: "unit", x: 12, y: middle, transform: `rotate(-90 12 ${middle})`, "text-anchor": "middle" }, unit));
}

/** Names as they stand under bars: those that are too long by their ends, which tell layers apart; where short ends do not,
 * by longer ones. @param {string[]} names */
export function tails(names) {
  const ends = (/** @type {number} */ most) => names.map((name) => (name.length <= most ? name : `…${name.slice(1 - most)}`));
  const few = ends(ROOM);
  return new Set(few).size === new Set(names).size ? few : ends(MOST);
}

/** What stands for which series. @param {string[]} names */
function legend(names) {
  return element("p", "series", ...names.map((name, i) => element("span", `key s${i % 6}`, element("i", ""), name)));
}

/** @param {Bars} plot @param {(page: number) => void} go */
export function bars(plot, go) {
  const values = plot.series.flatMap(([, amounts]) => amounts.filter((n) => n !== null));
  const powers = plot.unit !== "%" && farApart(values);
  const scale = powers ? logarithmic(values) : linear(values);
  const each = Math.max(9, Math.min(56, (WIDE - LEFT - RIGHT) / plot.names.length));
  const width = LEFT + RIGHT + each * plot.names.length;
  const names = tails(plot.names);
  const longest = Math.max(0, ...names.map((name) => name.length));
  const turn = longest > ROOM ? -90 : -60; // so that the first one stays in the picture
  const height = TOP + HIGH + 20 + longest * (turn === -90 ? 6.4 : 5.4);
  const made = frame(plot.title, Math.max(width, 360), height);
  rules(made.picture, scale, { top: TOP, height: HIGH, width, unit: powers ? `${plot.unit}, by powers of ten` : plot.unit });
  const bar = (each * 0.8) / plot.series.length;
  /** @type {Stop[]} */
  const stops = plot.names.map((name, i) => {
    const left = LEFT + each * (i + 0.1);
    const lines = [name];
    plot.series.forEach(([what, amounts], s) => {
      const amount = amounts[i];
      lines.push(`${what}: ${amount === null ? "not known" : `${said(amount)}${plot.unit === "%" ? " %" : ""}`}`);
      if (amount === null) return;
      const tall = Math.max(0, Math.min(1, scale.place(amount))) * HIGH;
      made.picture.append(svg("rect", { class: `bar s${s % 6}`, x: left + bar * s, y: TOP + HIGH - tall, width: Math.max(1, bar - 0.5), height: tall }));
    });
    const [x, y] = [left + each * 0.4 + (turn === -90 ? 4 : 0), TOP + HIGH + 10];
    made.picture.append(svg("text", { class: "name", x, y, transform: `rotate(${turn} ${x} ${y})`, "text-anchor": "end" }, names[i]));
    const page = plot.links[i];
    return { x, y: TOP + 8, lines, go: typeof page === "number" ? () => go(page) : undefined };
  });
  made.picture.append(svg("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: TOP + HIGH, y2: TOP + HIGH }));
  const nearest = (/** @type {number} */ x) => Math.max(0, Math.min(stops.length - 1, Math.floor((x - LEFT) / each)));
  tell(made, stops, { nearest, width: Math.max(width, 360), height });
  made.all.append(legend(plot.series.map(([what]) => what)));
  return made.all;
}

/** @param {Points} plot */
export function points(plot) {
  const [width, height] = [580, 360];
  const every = plot.clouds.flatMap((cloud) => cloud.points);
  const made = frame(plot.title, width, height);
  if (!every.length) {
    made.all.append(element("p", "quiet", "nothing to compare"));
    return made.all;
  }
  const [xs, ys] = [every.map(([x]) => x), every.map(([, y]) => y)];
  const [across, up] = [xs, ys].map((some) => (Math.max(...some) > 30 * Math.min(...some) ? logarithmic(some) : linear(some)));
  const [wide, tall] = [width - LEFT - RIGHT, height - TOP - 44];
  /** @param {number} x @param {number} y */
  const at = (x, y) => ({ x: LEFT + across.place(x) * wide * 0.96, y: TOP + tall * (1 - up.place(y) * 0.96) });
  rules(made.picture, { ...up, place: (y) => up.place(y) * 0.96 }, { top: TOP, height: tall, width, unit: plot.y });
  for (const tick of across.ticks) {
    const { x } = at(tick, 0);
    if (x > width) continue;
    made.picture.append(svg("line", { class: "rule", x1: x, x2: x, y1: TOP, y2: TOP + tall }));
    made.picture.append(svg("text", { class: "tick", x, y: TOP + tall + 16, "text-anchor": "middle" }, brief(tick)));
  }
  made.picture.append(svg("text", { class: "unit", x: LEFT + wide / 2, y: height - 8, "text-anchor": "middle" }, plot.x));
  /** @type {Stop[]} */
  const stops = [];
  plot.clouds.forEach((cloud, s) => {
    const places = cloud.points.map(([x, y]) => at(x, y));
    if (cloud.joined) {
      const down = [...places].sort((a, b) => a.x - b.x);
      const path = down.map(({ x, y }, i) => (i ? `H${x}V${y}` : `M${x} ${y}`)).join("");
      made.picture.append(svg("path", { class: `line s${s % 6}`, d: path }));
    }
    places.forEach(({ x, y }, i) => {
      const [across_, up_, what] = cloud.points[i];
      // Later clouds stand on earlier ones, and are rings or larger signs, so that neither hides the other.
      made.picture.append(sign(s, x, y, 4.5 + 0.5 * Math.min(s, 2)));
      const same = stops.find((stop) => Math.hypot(stop.x - x, stop.y - y) < 1 && stop.lines[0] === what);
      if (same) same.lines.push(cloud.name);
      else stops.push({ x, y, lines: [what, `${plot.x}: ${said(across_)}`, `${plot.y}: ${said(up_)}`, cloud.name] });
    });
  });
  stops.sort((a, b) => a.x - b.x || b.y - a.y);
  const nearest = (/** @type {number} */ x, /** @type {number} */ y) => {
    const away = stops.map((stop) => Math.hypot(stop.x - x, stop.y - y));
    return away.indexOf(Math.min(...away));
  };
  tell(made, stops, { nearest, width, height });
  made.all.append(legend(plot.clouds.map((cloud) => cloud.name)));
  return made.all;
}

/** The mark of a series, which colours alone would not tell apart. @param {number} s @param {number} x @param {number} y @param {number} r */
function sign(s, x, y, r) {
  const made = s % 3 === 0 ? svg("circle", { cx: x, cy: y, r })
    : s % 3 === 1 ? svg("rect", { x: x - r, y: y - r, width: 2 * r, height: 2 * r })
      : svg("path", { d: `M${x} ${y - 1.5 * r}L${x + 1.5 * r} ${y}L${x} ${y + 1.5 * r}L${x - 1.5 * r} ${y}z` });
  made.setAttribute("class", `point s${s % 6} shape${s % 3}`);
  return made;
}

/** @param {Curves} plot */
export function curves(plot) {
  const [width, tall] = [580, 240];
  const height = TOP + tall + 44;
  const made = frame(plot.title, width, height);
  const scale = linear(plot.series.flatMap(([, amounts]) => amounts.filter((n) => n !== null)));
  const [first, last] = [plot.at[0] ?? 0, plot.at[plot.at.length - 1] ?? 1];
  const wide = width - LEFT - RIGHT - 12;
  /** @param {number} value */
  const x = (value) => LEFT + 6 + (first === last ? 0.5 : (value - first) / (last - first)) * wide;
  /** @param {number} value */
  const y = (value) => TOP + tall * (1 - scale.place(value));
  rules(made.picture, scale, { top: TOP, height: tall, width, unit: plot.unit });
  for (const tick of linear([last]).ticks) {
    if (tick < first || tick > last || !Number.isInteger(tick)) continue;
    made.picture.append(svg("text", { class: "tick", x: x(tick), y: TOP + tall + 16, "text-anchor": "middle" }, brief(tick)));
  }
  made.picture.append(svg("text", { class: "unit", x: LEFT + wide / 2, y: height - 8, "text-anchor": "middle" }, plot.x));
  plot.series.forEach(([, amounts], s) => {
    let path = "";
    amounts.forEach((value, i) => {
      if (value !== null) path += `${path && amounts[i - 1] !== null ? "L" : "M"}${x(plot.at[i]).toFixed(1)} ${y(value).toFixed(1)}`;
    });
    made.picture.append(svg("path", { class: `line s${s % 6}`, d: path }));
    if (amounts.length <= 60) amounts.forEach((value, i) => value !== null && made.picture.append(sign(s, x(plot.at[i]), y(value), 3.5)));
  });
  const stops = plot.at.map((at, i) => ({
    x: x(at), y: TOP + 8,
    lines: [`${plot.x} ${said(at)}`, ...plot.series.map(([what, amounts]) => `${what}: ${amounts[i] === null ? "not known" : said(amounts[i] ?? 0)}`)],
  }));
  const nearest = (/** @type {number} */ at) => {
    const away = stops.map((stop) => Math.abs(stop.x - at));
    return away.indexOf(Math.min(...away));
  };
  tell(made, stops, { nearest, width, height });
  made.all.append(legend(plot.series.map(([what]) => what)));
  return made.all;
}

/** @param {Steps} plot */
export function steps(plot) {
  const strips = plot.apart ? plot.series.length : 1;
  const tall = plot.apart ? 46 : HIGH - 40;
  const head = plot.spans.length ? 76 : TOP;
  const height = head + strips * (tall + 12) + 40;
  const made = frame(plot.title, WIDE, height);
  const { edges } = plot;
  const [first, last] = [edges[0], edges[edges.length - 1]];
  const wide = WIDE - LEFT - RIGHT;
  /** @param {number} value */
  const x = (value) => LEFT + ((value - first) / (last - first || 1)) * wide;
  let before = -Infinity;
  for (const [name, begin, end] of plot.spans) {
    made.picture.append(svg("line", { class: "rule", x1: x(begin), x2: x(begin), y1: head - 4, y2: height - 36 }));
    const middle = (x(begin) + x(end)) / 2;
    if (middle - before < 13) continue;
    before = middle;
    made.picture.append(svg("text", { class: "name", x: middle, y: head - 8, transform: `rotate(-60 ${middle} ${head - 8})` }, short(name, 12)));
  }
  const all = linear([...plot.series.flatMap(([, amounts]) => amounts), plot.top]);
  /** @type {(amounts: number[]) => Scale} */
  const scaleOf = (amounts) => (plot.apart ? linear([...amounts, plot.unit === "%" ? 100 : 0]) : all);
  plot.series.forEach(([name, amounts], s) => {
    const top = head + (plot.apart ? s * (tall + 12) : 0);
    const scale = scaleOf(amounts);
    if (plot.apart || !s) rules(made.picture, plot.apart ? { ...scale, ticks: [scale.ticks[0], scale.ticks[scale.ticks.length - 1]] } : scale, { top, height: tall, width: WIDE, unit: plot.apart ? "" : plot.unit });
    const y = (/** @type {number} */ value) => top + tall * (1 - scale.place(value));
    const path = amounts.map((value, i) => `${i ? "L" : "M"}${x(edges[i]).toFixed(1)} ${y(value).toFixed(1)}H${x(edges[Math.min(i + 1, edges.length - 1)]).toFixed(1)}`).join("");
    const foot = top + tall;
    made.picture.append(svg("path", { class: `area s${s % 6}`, d: `${path}V${foot}H${x(first)}z` }), svg("path", { class: `line s${s % 6}`, d: path }));
    if (plot.apart) made.picture.append(svg("text", { class: "strip", x: LEFT + 6, y: top + 12 }, name));
  });
  if (plot.most && plot.most[1] <= all.most) {
    const y = head + tall * (1 - all.place(plot.most[1]));
    made.picture.append(svg("line", { class: "limit", x1: LEFT, x2: WIDE - RIGHT, y1: y, y2: y }));
    made.picture.append(svg("text", { class: "tick", x: WIDE - RIGHT, y: y - 5, "text-anchor": "end" }, `${plot.most[0]}: ${said(plot.most[1])}`));
  }
  for (const tick of linear([last]).ticks) {
    if (tick < first || tick > last) continue;
    made.picture.append(svg("text", { class: "tick", x: x(tick), y: height - 22, "text-anchor": "middle" }, brief(tick)));
  }
  made.picture.append(svg("text", { class: "unit", x: LEFT + wide / 2, y: height - 6, "text-anchor": "middle" }, plot.x));
  const stops = edges.slice(0, -1).map((edge, i) => {
    const span = plot.spans.find(([, begin, end]) => begin <= edge && edge < end);
    const amounts = plot.series.map(([name, some]) => `${name}: ${said(some[i] ?? 0)} ${plot.unit}`);
    return { x: x(edge), y: head, lines: [plot.labels[i] ?? `at ${said(edge)}`, ...amounts, ...(span ? [`on the way to ${span[0]}`] : [])] };
  });
  const nearest = (/** @type {number} */ at) => {
    let [low, high] = [0, stops.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (stops[middle].x <= at) low = middle;
      else high = middle - 1;
    }
    return low;
  };
  tell(made, stops, { nearest, width: WIDE, height });
  if (plot.most && plot.most[1] > all.most) made.all.append(element("p", "quiet", `The ${plot.most[0]} of ${said(plot.most[1])} ${plot.unit} is above the picture.`));
  if (!plot.apart && plot.series.length > 1) made.all.append(legend(plot.series.map(([name]) => name)));
  return made.all;
}
