// What a page knows of an e-graph: its record, decoded once, and questions about it. Nothing here draws.

/**
 * @typedef {object} Rule
 * @property {string} name
 * @property {string} family
 * @property {string} equation
 * @property {string} reason
 */
/**
 * The record that `glenside.report.egraph_record` writes; numbers index its tables.
 * @typedef {object} EgraphRecord
 * @property {string} title
 * @property {string} priced what costs are, in a sentence
 * @property {string[]} patterns texts of e-nodes; a child stands where HOLE is
 * @property {string[]} types
 * @property {string[]} costs
 * @property {string[]} briefs the first part of each cost
 * @property {Rule[]} rules
 * @property {{type: number[], cost: number[], bound: number[]}} classes
 * @property {{class: number[], pattern: number[], arity: number[], children: number[], own: number[], cost: number[],
 *   chosen: number[], subsumed: number[]}} nodes
 * @property {{node: number[], rule: number[], iteration: number[], source: number[]} | null} made
 * @property {number[]} written
 * @property {[string, number, string][]} roots name, class, and what is known of its cost
 * @property {[number, number][]} links a class that stands for a layer's result, and the class of the layer
 * @property {number} result
 * @property {number} iterations
 */
/** @typedef {{rule: number, iteration: number, source: number}} Making */
/** @typedef {"all" | "chosen" | "changed"} Mode */

export const HOLE = "\ue000";
export const UNKNOWN = -1;

/** An e-graph of which any class is found in constant time. */
export class Model {
  /** @param {EgraphRecord} record */
  constructor(record) {
    this.record = record;
    const { nodes, classes } = record;
    this.nodeCount = nodes.class.length;
    this.classCount = classes.type.length;
    /** @type {number[]} */
    this.start = [0];
    for (const arity of nodes.arity) this.start.push(this.start[this.start.length - 1] + arity);
    /** @type {number[][]} */
    this.members = Array.from({ length: this.classCount }, () => []);
    nodes.class.forEach((c, n) => this.members[c].push(n));
    this.chosen = new Set(nodes.chosen);
    this.subsumed = new Set(nodes.subsumed);
    this.written = new Set(record.written);
    /** @type {Map<number, Making[]>} */
    this.makings = new Map();
    /** The iteration in which each e-node came; UNKNOWN where nothing says. @type {number[]} */
    this.first = new Array(this.nodeCount).fill(record.made ? UNKNOWN : 0);
    if (record.made) {
      const { node, rule, iteration, source } = record.made;
      node.forEach((n, i) => {
        const known = this.makings.get(n) ?? [];
        known.push({ rule: rule[i], iteration: iteration[i], source: source[i] });
        this.makings.set(n, known);
        if (this.first[n] === UNKNOWN || iteration[i] < this.first[n]) this.first[n] = iteration[i];
      });
    }
    for (const n of this.written) this.first[n] = 0;
    for (const [, known] of this.makings) known.sort((a, b) => a.iteration - b.iteration);
    for (const some of this.members) some.sort((a, b) => Number(this.chosen.has(b)) - Number(this.chosen.has(a)));
    /** @type {Map<number, string[]>} */
    this.names = new Map();
    for (const [name, c] of record.roots) this.names.set(c, [...(this.names.get(c) ?? []), name || "result"]);
    /** @type {Map<number, number>} */
    this.links = new Map(record.links);
    /** @type {number[][] | null} */
    this.readersOf = null;
  }

  /** @param {number} n */
  children(n) {
    return this.record.nodes.children.slice(this.start[n], this.start[n + 1]);
  }

  /** The e-node in one line, without its children. @param {number} n */
  label(n) {
    const pattern = this.record.patterns[this.record.nodes.pattern[n]];
    return pattern.replaceAll(HOLE, "").replace(/^\(|\)$/g, "").replace(/ +/g, " ").trim();
  }

  /** The parts of an e-node's text: strings, and classes as numbers. @param {number} n */
  parts(n) {
    const pieces = this.record.patterns[this.record.nodes.pattern[n]].split(HOLE);
    const below = this.children(n);
    return pieces.flatMap((piece, i) => (i < below.length ? [piece, below[i]] : [piece]));
  }

  /** @param {number} c */
  type(c) {
    return this.record.types[this.record.classes.type[c]] ?? "";
  }

  /** @param {number} c */
  cost(c) {
    return this.record.costs[this.record.classes.cost[c]] ?? "";
  }

  /** @param {number} c */
  brief(c) {
    return this.record.briefs[this.record.classes.cost[c]] ?? "";
  }

  /** The classes that read a class; found for all of them when first asked. @param {number} c */
  readers(c) {
    if (!this.readersOf) {
      /** @type {Set<number>[]} */
      const found = Array.from({ length: this.classCount }, () => new Set());
      for (let n = 0; n < this.nodeCount; n++) {
        for (const child of this.children(n)) found[child].add(this.record.nodes.class[n]);
      }
      for (const [c, layer] of this.links) found[layer].add(c);
      this.readersOf = found.map((some) => [...some]);
    }
    return this.readersOf[c];
  }

  /** Classes from the result to c, by the fewest e-nodes; c alone where the result does not reach it. @param {number} c */
  path(c) {
    const before = new Map([[c, UNKNOWN]]);
    const queue = [c];
    for (const at of queue) {
      if (at === this.record.result) {
        const found = [];
        for (let step = at; step !== UNKNOWN; step = before.get(step) ?? UNKNOWN) found.push(step);
        return found;
      }
      for (const reader of this.readers(at)) {
        if (!before.has(reader)) {
          before.set(reader, at);
          queue.push(reader);
        }
      }
    }
    return [c];
  }

  /** Classes in which anything says the words: an operator, attribute, name, type or rule. The closest come first.
   * @param {string} words */
  search(words) {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    if (!wanted.length) return [];
    const { nodes, patterns, rules } = this.record;
    const texts = patterns.map((text) => text.toLowerCase());
    const types = this.record.types.map((text) => text.toLowerCase());
    const byRule = rules.map((rule) => rule.name.toLowerCase());
    /** @type {{eclass: number, why: string, score: number}[]} */
    const found = [];
    for (let c = 0; c < this.classCount; c++) {
      const names = (this.names.get(c) ?? []).join(" ").toLowerCase();
      const type = types[this.record.classes.type[c]] ?? "";
      if (wanted.every((word) => names.includes(word))) {
        found.push({ eclass: c, why: (this.names.get(c) ?? []).join(", "), score: 0 });
        continue;
      }
      const member = this.members[c].find((n) => wanted.every((word) => texts[nodes.pattern[n]].includes(word)));
      if (member !== undefined) {
        found.push({ eclass: c, why: this.label(member), score: this.chosen.has(member) ? 1 : 2 });
        continue;
      }
      const made = this.members[c].find((n) =>
        (this.makings.get(n) ?? []).some((making) => wanted.every((word) => byRule[making.rule].includes(word))),
      );
      if (made !== undefined) {
        const making = (this.makings.get(made) ?? []).find((one) => wanted.every((w) => byRule[one.rule].includes(w)));
        found.push({ eclass: c, why: `${this.label(made)} by ${making ? rules[making.rule].name : ""}`, score: 3 });
      } else if (wanted.every((word) => `${names} ${type}`.includes(word))) {
        found.push({ eclass: c, why: this.type(c), score: 4 });
      }
    }
    return found.sort((a, b) => a.score - b.score || a.eclass - b.eclass);
  }
}
