// The picture of a tile: which row and column of the array holds which element, and what stays empty.

import { element } from "./panel.js";
import { said } from "./scales.js";

/**
 * @typedef {object} Tile
 * @property {string} caption
 * @property {number} rows
 * @property {number} columns
 * @property {number} cells the number of its runs among those of the page
 * @property {{name: string, dims: number[]}[]} sources
 */

const SIDE = 340; // pixels of the longer side, about
const DISTINCT = 12; // elements that each have a colour of their own
// Okabe and Ito's, which neighbours do not share.
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b3a100", "#8c6bb1", "#4d7f8f", "#a6761d", "#7f9f3f", "#777777"];

/** The number of the element in each place; 0 is an empty one. @param {number[]} runs differences and how often each is */
export function placesOf(runs) {
  const found = [];
  let value = 0;
  for (let i = 0; i < runs.length; i += 2) for (let n = 0; n < runs[i + 1]; n++) found.push((value += runs[i]));
  return found;
}

/** The source of an element, and its indices there. @param {Tile} tile @param {number} number */
export function elementOf(tile, number) {
  let left = number - 1;
  for (const source of tile.sources) {
    const size = source.dims.reduce((a, b) => a * b, 1);
    if (left < size) {
      const index = [];
      for (const dim of [...source.dims].reverse()) {
        index.unshift(left % dim);
        left = Math.floor(left / dim);
      }
      return { source, index };
    }
    left -= size;
  }
  return null;
}

/** What tells elements apart: their own numbers where they are few, else their index along the first axis that differs.
 * @param {Tile} tile @param {number[]} places @returns {{of: (number: number) => number, axis: number}} */
export function kinds(tile, places) {
  const distinct = [...new Set(places)].filter((n) => n > 0);
  if (distinct.length <= DISTINCT) return { of: (n) => distinct.indexOf(n), axis: -1 };
  const known = distinct.map((n) => elementOf(tile, n)?.index ?? []);
  let axis = 0;
  while (axis < known[0].length - 1 && known.every((index) => index[axis] === known[0][axis])) axis++;
  return { of: (n) => elementOf(tile, n)?.index[axis] ?? 0, axis };
}

/** @param {Tile} tile @param {number} number */
function describe(tile, number) {
  const found = number ? elementOf(tile, number) : null;
  return found ? `element (${found.index.join(", ")}) of ${found.source.name}` : "empty";
}

/** The element of a tile. @param {Tile} tile @param {number[]} runs */
export function tilePicture(tile, runs) {
  const places = placesOf(runs);
  const cell = Math.max(1, Math.floor(SIDE / Math.max(tile.rows, tile.columns)));
  const canvas = document.createElement("canvas");
  canvas.width = tile.columns * cell;
  canvas.height = tile.rows * cell;
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `${tile.caption}; arrow keys go from place to place`);
  const pen = canvas.getContext("2d");
  const { of, axis } = kinds(tile, places);
  const line = cell >= 5 ? 1 : 0; // between places
  const draw = (/** @type {number} */ at) => {
    if (!pen) return;
    pen.clearRect(0, 0, canvas.width, canvas.height);
    places.forEach((number, i) => {
      if (!number) return;
      pen.fillStyle = COLOURS[of(number) % COLOURS.length];
      pen.fillRect((i % tile.columns) * cell, Math.floor(i / tile.columns) * cell, cell - line, cell - line);
    });
    if (at >= 0) {
      pen.lineWidth = 2;
      for (const [colour, grown] of /** @type {[string, number][]} */ ([["#ffffff", 3], ["#000000", 1]])) {
        pen.strokeStyle = colour;
        pen.strokeRect((at % tile.columns) * cell - grown, Math.floor(at / tile.columns) * cell - grown, cell + 2 * grown, cell + 2 * grown);
      }
    }
  };
  const note = element("p", "note");
  note.setAttribute("role", "status");
  const names = tile.sources.map((source) => `${source.name}, (${source.dims.join(" ")})`);
  const colours = axis < 0 ? "A colour is an element." : `A colour is an index along axis ${axis}.`;
  const resting = `Rows go down, columns across. ${colours} Of ${names.join("; ") || "nothing"}.`;
  note.textContent = resting;
  let at = -1;
  const show = (/** @type {number} */ next) => {
    at = next;
    draw(at);
    note.textContent = at < 0 ? resting : `Row ${said(Math.floor(at / tile.columns) + 1)}, column ${said((at % tile.columns) + 1)}: ${describe(tile, places[at])}.`;
  };
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.min(tile.columns - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * tile.columns)));
    const row = Math.min(tile.rows - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * tile.rows)));
    show(row * tile.columns + column);
  });
  canvas.addEventListener("pointerleave", () => show(-1));
  canvas.addEventListener("blur", () => show(-1));
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: tile.columns, ArrowUp: -tile.columns }[event.key];
    if (!step) return;
    show(at < 0 ? 0 : Math.min(places.length - 1, Math.max(0, at + step)));
    event.preventDefault();
    event.stopPropagation();
  });
  draw(-1);
  return element("figure", "tile", element("figcaption", "", tile.caption), canvas, note);
}
