// The parts of the viewer that draw nothing: the model, the search, and what is open. Run by `node --test`.
import assert from "node:assert/strict";
import { test } from "node:test";
import { readFileSync } from "node:fs";
import { runInThisContext } from "node:vm";
import { HOLE, Model } from "../../../glenside/report/page/model.js";
import { FIRST, ROWS, STEP, Walk, leftOut } from "../../../glenside/report/page/walk.js";
import { arrange, stacks } from "../../../glenside/report/page/layout.js";

const DAGRE = new URL("../../../glenside/report/page/vendor/dagre.min.js", import.meta.url);

/** A record from e-nodes [class, text, children, iteration]; iteration 0 is the program, odd ones are chosen.
 * @param {[number, string, number[], number][]} nodes @param {object} [rest] */
function record(nodes, rest = {}) {
  const patterns = [...new Set(nodes.map(([, text, children]) => `(${text}${` ${HOLE}`.repeat(children.length)})`))];
  const made = { node: [], rule: [], iteration: [], source: [] };
  nodes.forEach(([c, , , iteration], n) => {
    if (iteration > 0) [made.node, made.rule, made.iteration, made.source].forEach((column, i) => column.push([n, 0, iteration, c][i]));
  });
  const count = nodes.reduce((most, [c]) => Math.max(most, c), 0) + 1;
  return {
    title: "", priced: "", patterns, types: ["(1)(2) float32"], costs: [], briefs: [],
    rules: [{ name: "flip-twice", family: "f", equation: "e", reason: "r" }],
    classes: { type: Array(count).fill(0), cost: Array(count).fill(-1), bound: Array(count).fill(-1) },
    nodes: {
      class: nodes.map(([c]) => c), arity: nodes.map(([, , children]) => children.length),
      pattern: nodes.map(([, text, children]) => patterns.indexOf(`(${text}${` ${HOLE}`.repeat(children.length)})`)),
      children: nodes.flatMap(([, , children]) => children), own: [], cost: [], chosen: [], subsumed: [],
    },
    made, written: nodes.flatMap(([, , , iteration], n) => (iteration === 0 ? [n] : [])),
    roots: [["first", 0, ""]], links: [], result: 0, iterations: nodes.reduce((most, [, , , i]) => Math.max(most, i), 0), ...rest,
  };
}

const SMALL = record([[0, "flip 0", [1], 0], [1, "flip 1", [2], 0], [2, "tensor x", [], 0], [0, "pad", [2], 2], [1, "roll", [1], 1]]);

test("a model tells children, texts, first iterations and readers", () => {
  const model = new Model(SMALL);
  assert.deepEqual(model.children(0), [1]);
  assert.equal(model.label(0), "flip 0");
  assert.deepEqual(model.parts(0), ["(flip 0 ", 1, ")"]);
  assert.deepEqual(model.first, [0, 0, 0, 2, 1]);
  assert.deepEqual(model.readers(2).sort(), [0, 1]);
  assert.deepEqual(model.path(2), [0, 2]);
});

test("search finds operators, names, rules and types, the closest first", () => {
  const model = new Model(SMALL);
  assert.deepEqual(model.search("tensor").map((f) => f.eclass), [2]);
  assert.deepEqual(model.search("first").map((f) => f.eclass), [0]);
  assert.deepEqual(model.search("flip-twice").map((f) => f.eclass), [0, 1]);
  assert.equal(model.search("float32").length, 3);
  assert.deepEqual(model.search("no such"), []);
  assert.deepEqual(model.search("  "), []);
});

test("an iteration hides what came later", () => {
  const walk = new Walk(new Model(SMALL));
  assert.deepEqual(walk.members(0), [0, 3]);
  walk.iteration = 1;
  assert.deepEqual(walk.members(0), [0]);
  walk.mode = "changed";
  assert.deepEqual([...walk.visible()], [1]);
});

test("closing a class hides what nothing else opens, and all of it is said", () => {
  const model = new Model(SMALL);
  const walk = new Walk(model);
  assert.match(leftOut(model, walk, walk.part()), /^All of it: 3 e-classes, 5 e-nodes\.$/);
  walk.toggle(0);
  const part = walk.part();
  assert.deepEqual(part.boxes.map((box) => box.id), [0]);
  assert.equal(part.boxes[0].hidden, 2);
  assert.match(leftOut(model, walk, part), /1 of 3 e-classes and 2 of 5 e-nodes are shown; 2 e-classes are not open/);
});

/** A chain of n classes, each with a flip, a roll that reads two further ones, and many pads. @param {number} n */
function chain(n) {
  const nodes = [];
  for (let c = 0; c < n - 1; c++) {
    nodes.push([c, "flip", [c + 1], 0], [c, "roll", [Math.min(c + 2, n - 1), c + 1], 1]);
    for (let i = 0; i < 8; i++) nodes.push([c, `pad ${i}`, [n - 1], 2]);
  }
  nodes.push([n - 1, "tensor x", [], 0]);
  return record(nodes);
}

test("a large e-graph opens a little, and each step opens a little more", () => {
  const model = new Model(chain(20_000));
  const walk = new Walk(model);
  const first = walk.part();
  assert.ok(first.classes <= FIRST + 3 && first.classes > 1);
  assert.ok(first.boxes.every((box) => box.rows.length <= ROWS));
  assert.ok(first.boxes[0].more > 0);
  walk.widen();
  const second = walk.part().classes;
  assert.ok(second > first.classes && second <= first.classes + STEP + 3);
  assert.match(walk.reveal(15_000), /7,500 e-classes away; the last 12 on the way/);
  assert.equal(walk.reveal(3), "");
  assert.ok(walk.part().boxes.some((box) => box.id === 15_000));
});

/** No two boxes lie on each other, and no level or upright part of an edge on a box that it does not join.
 * @param {import("../../../glenside/report/page/layout.js").Layout} layout */
function clear(layout) {
  for (const [i, a] of layout.boxes.entries()) {
    for (const b of layout.boxes.slice(i + 1)) {
      assert.ok(a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y);
    }
  }
  for (const edge of layout.edges) {
    let [x, y] = [0, 0];
    for (const [, kind, said] of edge.path.matchAll(/([MHVC])([^MHVC]*)/g)) {
      const numbers = said.trim().split(" ").map(Number);
      const before = { x, y };
      if (kind === "H") [x] = numbers;
      else if (kind === "V") [y] = numbers;
      else [x, y] = numbers.slice(-2);
      if (kind === "M") continue;
      for (const box of layout.boxes) {
        const [low, high] = [Math.min(before.x, x), Math.max(before.x, x)];
        const [top, foot] = [Math.min(before.y, y), Math.max(before.y, y)];
        const within = low < box.x + box.width - 0.2 && high > box.x + 0.2 && top < box.y + box.height - 0.2 && foot > box.y + 0.2;
        assert.ok(!within || kind === "C", `${edge.from} to ${edge.to} runs through ${box.id}`);
      }
    }
  }
}

/** @param {number} count @param {[number, number, number][]} edges from, row, to */
function arranged(count, edges) {
  runInThisContext(readFileSync(DAGRE, "utf8"));
  const boxes = Array.from({ length: count }, (_, id) => ({ id, width: 60 + 30 * (id % 4), height: 60, ports: [30, 50] }));
  const job = { boxes, edges: edges.map(([from, row, to]) => ({ from, row, to, firm: false })) };
  return { stacks: stacks(job).map((stack) => stack.map(({ id }) => id)), ...arrange(job, globalThis.dagre) };
}

test("edges keep clear of boxes and begin at their rows", () => {
  const layout = arranged(4, [[0, 0, 1], [0, 1, 3], [1, 0, 2], [2, 1, 3], [2, 0, 0], [1, 1, 1], [3, 0, 2]]);
  assert.equal(layout.edges.length, 6, "an edge to itself is not drawn");
  clear(layout);
  const at = new Map(layout.boxes.map((box) => [box.id, box]));
  for (const edge of layout.edges) {
    const box = at.get(edge.from);
    const [x, y] = edge.path.slice(1).split(/[ HC]/).map(Number);
    assert.ok(Math.abs(x - (edge.back ? box.x : box.x + box.width)) < 0.2);
    assert.ok(Math.abs(y - box.y - [30, 50][edge.row]) < 0.2);
  }
  assert.equal(layout.edges.filter((edge) => edge.back).length, 2);
});

test("a chain stands in one column, what branches off beside it", () => {
  const layout = arranged(6, [[0, 0, 1], [1, 0, 2], [1, 1, 2], [2, 0, 3], [2, 1, 4], [4, 0, 5]]);
  assert.deepEqual(layout.stacks, [[0, 1, 2], [3], [4, 5]]);
  clear(layout);
  const at = new Map(layout.boxes.map((box) => [box.id, box]));
  assert.equal(new Set([0, 1, 2].map((id) => at.get(id).x)).size, 1);
  assert.ok(at.get(0).y < at.get(1).y && at.get(1).y < at.get(2).y && at.get(3).x > at.get(2).x);
  const down = layout.edges.filter(({ from, to }) => from === 1 && to === 2).map(({ path }) => path);
  assert.equal(new Set(down).size, 2, "two rows that read one class have an edge each");
  for (const path of down) assert.match(path, /^M[\d.-]+ [\d.-]+V[\d.-]+$/);
});

test("long chains go on in the next column, and cycles leave theirs", () => {
  const long = arranged(30, Array.from({ length: 29 }, (_, i) => [i, 0, i + 1]));
  assert.deepEqual(long.stacks.flat(), Array.from({ length: 30 }, (_, i) => i));
  assert.ok(long.stacks.length > 2 && long.height <= 540);
  clear(long);
  // 3 leads back to 1, which 0 reads too; 4 and 5 are read by each other alone.
  const round = arranged(6, [[0, 0, 1], [1, 0, 2], [2, 0, 3], [3, 0, 1], [4, 0, 5], [5, 0, 4]]);
  assert.deepEqual(round.stacks.flat().sort(), [0, 1, 2, 3, 4, 5]);
  assert.equal(round.edges.length, 6);
  clear(round);
});
