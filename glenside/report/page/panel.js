// The side panel: everything that is known of one e-class.

import { UNKNOWN } from "./model.js";
import { several, short } from "./draw.js";

/** @typedef {import("./model.js").Model} Model */

const MEMBERS = 40; // e-nodes that are listed before one asks for more

/** @param {string} name @param {string} kind @param {...(Node | string)} content */
export function element(name, kind, ...content) {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  made.append(...content);
  return made;
}

/** @param {Model} model @param {number} c @param {(c: number) => void} go @param {string} [text] */
function link(model, c, go, text = `c${c}`) {
  const made = element("button", "link", text);
  made.title = `${model.names.get(c)?.join(", ") ?? ""} ${model.label(model.members[c][0])}`.trim();
  made.addEventListener("click", () => go(c));
  return made;
}

/** What is known of how an e-node came. @param {Model} model @param {number} n @param {(c: number) => void} go */
function origin(model, n, go) {
  const list = element("ul", "origin");
  if (model.written.has(n)) list.append(element("li", "", "in the program as it was given"));
  if (!model.record.made) {
    list.append(element("li", "quiet", "which rule made it is not known: this search kept no trace"));
    return list;
  }
  for (const { rule, iteration, source } of model.makings.get(n) ?? []) {
    const { name, family, equation, reason } = model.record.rules[rule];
    const title = element("summary", "", element("b", "", name), ` in iteration ${iteration}, from `);
    title.append(link(model, source, go));
    const details = element("details", "", title);
    if (family) details.append(element("p", "quiet", `family ${family}`));
    if (equation) details.append(element("p", "equation", equation));
    if (reason) details.append(element("p", "", reason));
    if (!equation && !reason) details.append(element("p", "quiet", "this rule's record is not in the package"));
    list.append(element("li", "", details));
  }
  if (!list.childElementCount) list.append(element("li", "quiet", "which rule made it is not known"));
  return list;
}

/** @param {Model} model @param {number} n @param {(c: number) => void} go */
function member(model, n, go) {
  const { nodes, costs } = model.record;
  const text = element("code", "");
  for (const part of model.parts(n)) text.append(typeof part === "number" ? link(model, part, go) : part);
  const chosen = model.chosen.has(n);
  const item = element("li", chosen ? "member chosen" : "member", chosen ? "● chosen " : "", text);
  const [own, cost] = [nodes.own[n], nodes.cost[n]];
  if (cost !== UNKNOWN) item.append(element("p", "price", `with it: ${costs[cost]}; by itself: ${costs[own]}`));
  else if (own !== UNKNOWN) item.append(element("p", "price", `by itself: ${costs[own]}; it reads only itself in the end`));
  if (model.subsumed.has(n)) item.append(element("p", "quiet", "taken away by a rule: another form is enough"));
  item.append(origin(model, n, go));
  return item;
}

/** @param {HTMLElement} place @param {Model} model @param {number} c @param {(c: number) => void} go */
export function showPanel(place, model, c, go) {
  const { costs, classes, priced, roots } = model.record;
  const names = model.names.get(c);
  const title = element("h2", "", names ? short(several(names), 120) : `e-class c${c}`);
  const facts = element("dl", "");
  /** @param {string} what @param {...(Node | string)} said */
  const fact = (what, ...said) => facts.append(element("dt", "", what), element("dd", "", ...said));
  if (names) fact("e-class", `c${c}`);
  fact("type", model.type(c) || "none: it is a tuple");
  if (classes.cost[c] !== UNKNOWN) {
    fact("cost", costs[classes.cost[c]]);
    fact("bound", costs[classes.bound[c]]);
  }
  /** @type {Map<string, string[]>} */
  const known = new Map(); // equal layers are one e-class, and what is said of them is said once
  for (const [name, at, said] of roots) if (at === c && said) known.set(said, [...(known.get(said) ?? []), name || "the whole"]);
  for (const [said, own] of known) fact(short(several(own), 40), said);
  const layer = model.links.get(c);
  if (layer !== undefined) fact("stands for", link(model, layer, go, model.names.get(layer)?.[0] ?? `c${layer}`), ", a layer that is searched apart");
  const readers = model.readers(c);
  const some = readers.slice(0, 12).flatMap((d, i) => [i ? ", " : "", link(model, d, go)]);
  fact("read by", ...(some.length ? some : ["nothing"]), readers.length > 12 ? ` and ${readers.length - 12} more` : "");
  const members = model.members[c];
  const list = element("ul", "members", ...members.slice(0, MEMBERS).map((n) => member(model, n, go)));
  place.replaceChildren(title, facts, element("p", "quiet", priced), element("h3", "", `${members.length} e-node${members.length > 1 ? "s" : ""}`), list);
  if (members.length > MEMBERS) {
    const rest = element("button", "", `${members.length - MEMBERS} more e-nodes`);
    rest.addEventListener("click", () => {
      list.append(...members.slice(MEMBERS).map((n) => member(model, n, go)));
      rest.remove();
    });
    place.append(rest);
  }
}
