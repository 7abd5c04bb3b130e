// The parts of a report's page that draw nothing: order and filters of rows, scales, and what a tile holds.
import assert from "node:assert/strict";
import { test } from "node:test";
import { tails } from "../../../glenside/report/page/charts.js";
import { filtered, hint, numberOf, ordered } from "../../../glenside/report/page/rows.js";
import { brief, farApart, linear, logarithmic } from "../../../glenside/report/page/scales.js";
import { elementOf, kinds, placesOf } from "../../../glenside/report/page/tile.js";

test("cells are numbers as tables write them, or none", () => {
  assert.deepEqual(["1,024", "x 5", "12.5 %", "-3", "1.5e+20", "0"].map(numberOf), [1024, 5, 12.5, -3, 1.5e20, 0]);
  assert.deepEqual(["unknown", "", "-", "1 x 2", "3x3", "28 layers"].map(numberOf), [null, null, null, null, null, null]);
});

test("numbers go by size, words by alphabet, equals as they came", () => {
  const rows = [["b", "10"], ["a", "9"], ["c", "-"], ["a", "9"]];
  assert.deepEqual(ordered(rows, 1, false), [1, 3, 0, 2]);
  assert.deepEqual(ordered(rows, 1, true), [0, 1, 3, 2]);
  assert.deepEqual(ordered(rows, 0, true), [2, 0, 1, 3]);
});

test("a filter compares the last column of a name, and takes anything else as a word", () => {
  const columns = ["layer", "baseline cycles", "chosen cycles"].map((name) => ({ name, words: name === "layer" }));
  const row = ["conv a>b", "1,000", "90"];
  const keeps = (/** @type {string} */ text) => filtered(text, columns)(row);
  assert.ok(keeps("") && keeps("CONV") && keeps("cycles<100") && keeps("baseline>=1000") && keeps("a>b") && keeps("conv cycles=90"));
  assert.ok(!keeps("cycles>100") && !keeps("conv dw") && !keeps("height>3"));
});

test("a filter's hint names an amount that the filter finds", () => {
  const columns = ["layer", "groups x MM", "util %", "baseline cycles", "seconds"].map((name) => ({ name, words: name === "layer" }));
  const rows = [["a", "1 x 2", "unknown", "1,001", "2"]];
  assert.equal(hint(columns, rows), "filter: words, or cycles>1000");
  assert.ok(filtered("cycles>1000", columns)(rows[0]));
  assert.equal(hint(columns.slice(0, 3), rows), "filter: words");
});

test("names under bars are their ends, longer ones where those are the same", () => {
  assert.deepEqual(tails(["conv1", "layer4.0.downsample"]), ["conv1", "….0.downsample"]);
  const machines = ["npu:32x32,scratchpad=256KB", "npu:64x64,scratchpad=256KB"];
  assert.deepEqual(tails(machines), machines);
  assert.deepEqual(tails([]), []);
  assert.equal(new Set(tails(["x".repeat(200), `y${"x".repeat(199)}`])).size, 1);
});

test("scales put all amounts between their ends", () => {
  for (const values of [[], [0], [5], [3, 8, 97], [-4, 4], [0.001, 0.002], [1e12, 3]]) {
    const scale = linear(values);
    for (const value of values) assert.ok(scale.place(value) >= 0 && scale.place(value) <= 1, `${value} of ${values}`);
    assert.ok(scale.ticks.length >= 2 && scale.ticks.length <= 12);
  }
  for (const values of [[1], [10, 1000], [0, 7, 1e9], [0.02, 5]]) {
    const scale = logarithmic(values);
    for (const value of values) assert.ok(scale.place(value) >= 0 && scale.place(value) <= 1, `${value} of ${values}`);
    assert.ok(scale.place(Math.max(...values)) > 0);
  }
  assert.ok(farApart([1, 2, 3, 400, 9000]) && !farApart([1, 2, 3, 4]));
  assert.deepEqual([0, 999, 1234, 5_600_000].map(brief), ["0", "999", "1.23k", "5.6M"]);
});

test("runs are places, and numbers elements of sources", () => {
  assert.deepEqual(placesOf([1, 3, -3, 1, 7, 2]), [1, 2, 3, 0, 7, 14]);
  const tile = { caption: "", rows: 2, columns: 3, cells: 0, sources: [{ name: "w", dims: [2, 3] }, { name: "v", dims: [4] }] };
  assert.deepEqual(elementOf(tile, 5), { source: tile.sources[0], index: [1, 1] });
  assert.deepEqual(elementOf(tile, 7), { source: tile.sources[1], index: [0] });
  assert.equal(elementOf(tile, 11), null);
});

test("few elements have a colour each, many one along the first axis that differs", () => {
  const tile = { caption: "", rows: 4, columns: 4, cells: 0, sources: [{ name: "w", dims: [1, 4, 8] }] };
  assert.equal(kinds(tile, [0, 3, 3, 9]).axis, -1);
  const many = kinds(tile, Array.from({ length: 32 }, (_, i) => i + 1));
  assert.deepEqual([many.axis, many.of(1), many.of(9), many.of(32)], [1, 0, 1, 3]);
});
