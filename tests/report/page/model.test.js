// The parts of the viewer that draw nothing: the model, the search, and what is open. Run by `node --test`.
import assert from "node:assert/strict";
import { test } from "node:test";
import { readFileSync } from "node:fs";
import { runInThisContext } from "node:vm";
import { HOLE, Model } from "../../../glenside/report/page/model.js";
import { FIRST, ROWS, STEP, Walk, leftOut } from "../../../glenside/report/page/walk.js";
import { arrange } from "../../../glenside/report/page/layout.js";

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

test("edges keep clear of boxes and begin at their rows", () => {
  runInThisContext(readFileSync(DAGRE, "utf8"));
  const boxes = [0, 1, 2, 3].map((id) => ({ id, width: 60 + 30 * id, height: 60, ports: [30, 50] }));
  const edges = [{ from: 0, row: 0, to: 1 }, { from: 0, row: 1, to: 3 }, { from: 1, row: 0, to: 2 }, { from: 2, row: 1, to: 3 }, { from: 2, row: 0, to: 0 }, { from: 1, row: 1, to: 1 }];
  const layout = arrange({ boxes, edges }, globalThis.dagre);
  assert.equal(layout.edges.length, 5, "an edge to itself is not drawn");
  const at = new Map(layout.boxes.map((box) => [box.id, box]));
  for (const [i, a] of layout.boxes.entries()) {
    for (const b of layout.boxes.slice(i + 1)) {
      assert.ok(a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y);
    }
  }
  for (const edge of layout.edges) {
    const box = at.get(edge.from);
    const [x, y] = edge.path.slice(1).split(/[ HC]/).map(Number);
    assert.ok(Math.abs(x - (edge.back ? box.x : box.x + box.width)) < 0.2);
    assert.ok(Math.abs(y - box.y - [30, 50][edge.row]) < 0.2);
  }
  assert.equal(layout.edges.filter((edge) => edge.back).length, 1);
});
