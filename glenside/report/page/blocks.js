// What each kind of block of a document looks like.

import { element } from "./panel.js";
import { table } from "./table.js";
import { bars, curves, points, steps } from "./charts.js";
import { tilePicture } from "./tile.js";

/** @typedef {{kind: string} & Record<string, any>} Block what `glenside.report.document` says of one */
/**
 * @typedef {object} Context
 * @property {number[][]} cells runs of tiles
 * @property {(page: number) => void} go open a page
 * @property {(place: HTMLElement, start: number) => void} egraph open the e-graph at a class
 */

/** @type {Record<string, (block: any, context: Context) => HTMLElement>} */
const KINDS = {
  words: ({ lines }) => element("div", "said", ...lines.map((/** @type {string} */ text) => element("p", "", text))),
  facts: ({ pairs }) => element("dl", "facts", ...pairs.flatMap((/** @type {[string, string]} */ [name, said]) => [element("dt", "", name), element("dd", "", said)])),
  grid: (block, { go }) => table(block, go),
  bars: (block, { go }) => bars(block, go),
  points: (block) => points(block),
  steps: (block) => steps(block),
  curves: (block) => curves(block),
  tiles: ({ tiles }, { cells }) => element("div", "tiles", ...tiles.map((/** @type {any} */ tile) => tilePicture(tile, cells[tile.cells]))),
  rules: ({ rules }) => element("div", "rules", ...rules.map(rule)),
  picture: ({ svg }) => {
    const drawn = document.createElement("img"); // its own styles apply there, and nowhere else
    drawn.src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
    drawn.alt = "The network before and after.";
    drawn.style.maxWidth = "100%";
    return element("div", "picture", drawn);
  },
  code: ({ text }) => element("pre", "", text),
  egraph: ({ start }, context) => {
    const open = element("button", "", "Open the e-graph here");
    const place = element("div", "egraph", open);
    open.addEventListener("click", () => {
      place.classList.add("open");
      context.egraph(place, start);
    });
    return place;
  },
};

/** @param {{name: string, family: string, equation: string, reason: string}} known */
function rule({ name, family, equation, reason }) {
  const said = element("details", "", element("summary", "", element("b", "", name), equation ? `  ${equation}` : ""));
  if (family) said.append(element("p", "quiet", `family ${family}`));
  said.append(element("p", "", reason || "this rule's record is not in the package"));
  return said;
}

/** The elements of sections. @param {{title: string, blocks: Block[]}[]} sections @param {Context} context */
export function sectionsOf(sections, context) {
  return sections.map(({ title, blocks }) => {
    const own = blocks.map((block) => KINDS[block.kind](block, context));
    return element("section", "part", ...(title ? [element("h2", "", title)] : []), ...own);
  });
}
