// Which part of an e-graph is open: one walks from the result to the leaves, and each step opens what it needs.

/** @typedef {import("./model.js").Model} Model */

export const ROWS = 6; // e-nodes that a box shows before it is asked for more
export const FIRST = 24; // classes that are open at first
export const WAY = 24; // classes on a way that is opened as a whole
export const STEP = 40; // classes that one step opens at most

/** @typedef {import("./model.js").Mode} Mode */
/** @typedef {{id: number, rows: number[], more: number, hidden: number}} Box more: e-nodes, hidden: classes below */
/** @typedef {{from: number, row: number, to: number, firm: boolean}} Edge row: place among the rows; firm: chosen */
/** @typedef {{boxes: Box[], edges: Edge[], nodes: number, classes: number, limited: number}} Part */

/** The open part of an e-graph, as it changes. */
export class Walk {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    /** @type {Mode} */
    this.mode = "all";
    this.iteration = model.record.iterations;
    this.most = FIRST;
    /** @type {Set<number>} */
    this.open = new Set();
    /** @type {Set<number>} */
    this.pinned = new Set();
    /** @type {Set<number>} */
    this.whole = new Set();
    this.begin(model.record.result);
  }

  /** Start anew at a class: the chosen program below it is open, as far as one sees it at a glance. @param {number} c */
  begin(c) {
    this.open.clear();
    this.pinned = new Set([c]);
    this.whole.clear();
    const queue = [c];
    const seen = new Set(queue);
    for (const at of queue) {
      const below = this.below(at, true);
      if (seen.size + below.filter((d) => !seen.has(d)).length > FIRST) break;
      this.open.add(at);
      for (const d of below) {
        if (!seen.has(d)) {
          seen.add(d);
          queue.push(d);
        }
      }
    }
  }

  /** Whether an e-node is there by the iteration, and of the kind that is shown. @param {number} n */
  shows(n) {
    const { first, chosen } = this.model;
    if (first[n] > this.iteration) return false;
    if (this.mode === "chosen") return chosen.has(n);
    return this.mode !== "changed" || first[n] === this.iteration;
  }

  /** @param {number} c */
  members(c) {
    return this.model.members[c].filter((n) => this.shows(n));
  }

  /** The e-nodes that the box of a class has as rows. @param {number} c */
  rows(c) {
    const some = this.members(c);
    return this.whole.has(c) ? some : some.slice(0, ROWS);
  }

  /** The classes that the rows of a class read, without itself; of the chosen one alone, where there is one.
   * @param {number} c @param {boolean} [chosen] */
  below(c, chosen = false) {
    const rows = this.rows(c);
    const best = chosen ? rows.filter((n) => this.model.chosen.has(n)) : rows;
    const found = new Set((best.length ? best : rows).flatMap((n) => this.model.children(n)));
    found.delete(c);
    const layer = this.model.links.get(c);
    if (layer !== undefined) found.add(layer);
    return [...found].filter((d) => this.mode === "changed" || this.members(d).length > 0);
  }

  /** Open what a class reads, or close it. @param {number} c */
  toggle(c) {
    if (this.open.has(c)) this.open.delete(c);
    else this.open.add(c);
  }

  /** Show a class that may be anywhere, with the way to it from the result, or the end of a long one; what is left out of
   * the way is said. @param {number} c */
  reveal(c) {
    const way = this.model.path(c);
    const shown = way.length > WAY ? way.slice(-WAY / 2) : way;
    for (const at of shown) this.pinned.add(at);
    const said = (/** @type {number} */ n) => n.toLocaleString("en");
    return shown.length < way.length
      ? `From the result it is ${said(way.length - 1)} e-classes away; the last ${shown.length} on the way are open.`
      : "";
  }

  /** Open one more step everywhere, as many classes as one sees at a glance. */
  widen() {
    if (this.mode === "changed") {
      this.most += STEP;
      return;
    }
    const shown = this.visible();
    let left = STEP;
    for (const c of shown) {
      const below = this.below(c).filter((d) => !shown.has(d));
      if (below.length && below.length <= Math.max(left, STEP / 2)) {
        this.open.add(c);
        for (const d of below) shown.add(d);
        left -= below.length;
      }
      if (left <= 0) break;
    }
  }

  /** Every class that changed in the iteration. */
  changed() {
    const found = [];
    for (let c = 0; c < this.model.classCount; c++) if (this.members(c).length) found.push(c);
    return found;
  }

  /** The classes that are open, the nearest first. */
  visible() {
    const shown = new Set(
      this.mode === "changed" ? this.changed().slice(0, this.most) : [...this.pinned].filter((c) => this.members(c).length),
    );
    if (this.mode === "changed") return shown;
    for (const c of shown) if (this.open.has(c)) for (const d of this.below(c)) shown.add(d); // it grows while it is read
    return shown;
  }

  /** What is to be drawn, and how much of the e-graph that is. @returns {Part} */
  part() {
    const shown = this.visible();
    /** @type {Edge[]} */
    const edges = [];
    const boxes = [...shown].map((id) => {
      const rows = this.rows(id);
      rows.forEach((n, row) => {
        for (const to of new Set(this.model.children(n))) if (shown.has(to)) edges.push({ from: id, row, to, firm: this.model.chosen.has(n) });
      });
      const layer = this.model.links.get(id);
      if (layer !== undefined && rows.length && shown.has(layer)) edges.push({ from: id, row: 0, to: layer, firm: true });
      const hidden = this.mode === "changed" ? 0 : this.below(id).filter((d) => !shown.has(d)).length;
      return { id, rows, more: this.members(id).length - rows.length, hidden };
    });
    const limited = this.mode === "changed" ? this.changed().length - shown.size : 0;
    return { boxes, edges, nodes: boxes.reduce((sum, box) => sum + box.rows.length, 0), classes: shown.size, limited };
  }
}

/** What a part leaves out, in a sentence. @param {Model} model @param {Walk} walk @param {Part} part */
export function leftOut(model, walk, part) {
  /** @param {number} n */
  const say = (n) => n.toLocaleString("en");
  const classes = `${say(part.classes)} of ${say(model.classCount)} e-classes`;
  const nodes = `${say(part.nodes)} of ${say(model.nodeCount)} e-nodes`;
  const all = part.classes === model.classCount && part.nodes === model.nodeCount;
  const some = (/** @type {number} */ n, /** @type {string} */ one, /** @type {string} */ many) => `${say(n)} ${n === 1 ? one : many}`;
  if (all) return `All of it: ${some(part.classes, "e-class", "e-classes")}, ${some(part.nodes, "e-node", "e-nodes")}.`;
  let why = some(model.classCount - part.classes, "e-class is not open", "e-classes are not open");
  if (walk.iteration < model.record.iterations) why = some(model.classCount - part.classes, "e-class is not open, or not made yet", "e-classes are not open, or not made yet");
  if (walk.mode === "chosen") why = "only what was chosen is shown";
  if (walk.mode === "changed") {
    const more = part.limited ? `, and ${say(part.limited)} more e-classes changed` : "";
    why = `only what iteration ${walk.iteration} made${more}`;
  }
  return `${classes} and ${nodes} are shown; ${why}.`;
}
