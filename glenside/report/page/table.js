// A table that one sorts by its heads and filters by words and amounts.

import { element } from "./panel.js";
import { filtered, hint, ordered } from "./rows.js";

/**
 * @typedef {object} Grid
 * @property {string} title
 * @property {import("./rows.js").Column[]} columns
 * @property {string[][]} rows
 * @property {string[] | null} between what is between the rows and the total
 * @property {string[] | null} total
 * @property {number[]} wrong rows to look at
 * @property {(number | null)[]} links the page of each row
 */

const FEW = 6; // rows that need no filter
const MANY = 9; // columns from which on paper needs smaller letters
const BRIEF = 20; // characters of words that are kept on one line

/** Words that are short in every row stand on one line. @param {Grid} grid */
function kindsOf(grid) {
  return grid.columns.map(({ words, long }, i) => {
    if (!words) return "number";
    if ([...grid.rows, grid.between, grid.total].every((cells) => (cells?.[i].length ?? 0) <= BRIEF)) return "words brief";
    return long ? "words long" : "words";
  });
}

/** A cell, of which a long name is broken behind its commas and slashes before it is anywhere else.
 * @param {string} text @param {string} kind */
function cell(text, kind) {
  if (kind !== "words" && kind !== "words long") return [text];
  return text.split(/(?<=[,/])(?=\S)/).flatMap((piece, i) => (i ? [element("wbr", ""), piece] : [piece]));
}

/** The element of a table. @param {Grid} grid @param {(page: number) => void} go */
export function table(grid, go) {
  const kinds = kindsOf(grid);
  /** @param {string[]} cells @param {string} kind */
  const line = (cells, kind) => element("tr", kind, ...cells.map((text, i) => element("td", kinds[i], ...cell(text, kinds[i]))));
  const rows = grid.rows.map((cells, i) => {
    const row = line(cells, grid.wrong.includes(i) ? "wrong" : "");
    const page = grid.links[i];
    if (typeof page === "number") {
      const link = element("a", "", cells[0]);
      link.setAttribute("href", `#${page + 1}`);
      row.firstElementChild?.replaceChildren(link);
      row.classList.add("leads");
      row.addEventListener("click", () => getSelection()?.isCollapsed !== false && go(page));
    }
    return row;
  });
  const body = element("tbody", "", ...rows);
  const count = element("span", "quiet");
  count.setAttribute("role", "status");
  let sorted = { column: -1, falling: false };
  /** @type {(row: string[]) => boolean} */
  let keeps = () => true;

  const show = () => {
    const order = sorted.column < 0 ? grid.rows.map((_, i) => i) : ordered(grid.rows, sorted.column, sorted.falling);
    const left = order.filter((i) => keeps(grid.rows[i]));
    body.replaceChildren(...left.map((i) => rows[i]));
    count.textContent = left.length === rows.length ? "" : `${left.length} of ${rows.length} rows`;
  };

  const heads = grid.columns.map((column, i) => {
    const sort = element("button", "", column.name || "\u00a0");
    const head = element("th", column.words ? "words" : "number", sort);
    head.setAttribute("scope", "col");
    sort.addEventListener("click", () => {
      // Numbers begin with the largest, words with the first; a third press gives the order of the program back.
      const again = sorted.column === i;
      const back = again && sorted.falling === column.words;
      sorted = back ? { column: -1, falling: false } : { column: i, falling: again ? !sorted.falling : !column.words };
      for (const other of heads) other.removeAttribute("aria-sort");
      if (!back) head.setAttribute("aria-sort", sorted.falling ? "descending" : "ascending");
      show();
    });
    return head;
  });
  const foot = element("tfoot", "");
  if (grid.between) foot.append(line(grid.between, "between"));
  if (grid.total) foot.append(line(grid.total, "total"));
  const all = element("table", grid.columns.length > MANY ? "many" : "", element("thead", "", element("tr", "", ...heads)), body, foot);
  const parts = [element("h3", "", grid.title)];
  if (grid.rows.length > FEW) {
    const filter = document.createElement("input");
    filter.type = "search";
    filter.placeholder = hint(grid.columns, grid.rows);
    filter.setAttribute("aria-label", `filter ${grid.title}`);
    filter.addEventListener("input", () => {
      keeps = filtered(filter.value, grid.columns);
      show();
    });
    parts.push(element("p", "filter", filter, " ", count));
  }
  return element("section", "grid", ...parts, element("div", "wide", all));
}
