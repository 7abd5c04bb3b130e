// Numbers to places on an axis, and the round numbers that are written there. Nothing here draws.

/** @typedef {{place: (value: number) => number, ticks: number[], most: number}} Scale place: from 0 to 1; most: what is at 1 */

/** A number as people read it. @param {number} value */
export function said(value) {
  return value.toLocaleString("en", { maximumFractionDigits: 3 });
}

/** The same where there is little room: 12k, 3.4M. @param {number} value */
export function brief(value) {
  const units = /** @type {[number, string][]} */ ([[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]);
  for (const [size, unit] of units) if (Math.abs(value) >= size) return `${Number((value / size).toPrecision(3))}${unit}`;
  return String(Number(value.toPrecision(3)));
}

/** Round numbers, some five of them, that low and high are between. @param {number} low @param {number} high */
function round(low, high) {
  const rough = (high - low) / 5 || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) ?? rough;
  const found = [];
  for (let at = Math.floor(low / step + 1e-9); at <= Math.ceil(high / step - 1e-9); at++) found.push(Number((at * step).toPrecision(12)));
  return found;
}

/** From 0, or from the least where that is below. @param {number[]} values @returns {Scale} */
export function linear(values) {
  let [low, high] = [0, 0];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  const ticks = round(low, high === low ? low + 1 : high);
  const [first, last] = [ticks[0], ticks[ticks.length - 1]];
  return { place: (value) => (value - first) / (last - first), ticks, most: last };
}

/** By powers of ten. Amounts of 0 stand at the foot. @param {number[]} values @returns {Scale} */
export function logarithmic(values) {
  let [low, high] = [Infinity, 0];
  for (const value of values) if (value > 0) [low, high] = [Math.min(low, value), Math.max(high, value)];
  if (!high) return linear([]);
  const first = Math.floor(Math.log10(low) - (low === high ? 1 : 0));
  const last = Math.max(Math.ceil(Math.log10(high)), first + 1);
  const every = Math.ceil((last - first) / 6);
  const ticks = [];
  for (let power = first; power <= last; power += every) ticks.push(10 ** power);
  return { place: (value) => (value > 0 ? (Math.log10(value) - first) / (last - first) : 0), ticks, most: 10 ** last };
}

/** Whether amounts are so far apart that small ones would not be seen beside large ones. @param {number[]} values */
export function farApart(values) {
  const known = values.filter((value) => value > 0).sort((a, b) => a - b);
  return known.length > 3 && known[known.length - 1] > 40 * known[Math.floor(known.length / 4)];
}
