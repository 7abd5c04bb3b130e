// A table that one sorts by its heads and filters by words and amounts.

import { element } from "./panel.js";
import { filtered, ordered } from "./rows.js";

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

/** @param {import("./rows.js").Column} column */
function kindOf(column) {
  return column.words ? (column.long ? "words long" : "words") : "number";
}

/** @param {Grid} grid @param {string[]} cells @param {string} kind */
function line(grid, cells, kind) {
  return element("tr", kind, ...cells.map((cell, i) => element("td", kindOf(grid.columns[i]), cell)));
}

/** The element of a table. @param {Grid} grid @param {(page: number) => void} go */
export function table(grid, go) {
  const rows = grid.rows.map((cells, i) => {
    const row = line(grid, cells, grid.wrong.includes(i) ? "wrong" : "");
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
  if (grid.between) foot.append(line(grid, grid.between, "between"));
  if (grid.total) foot.append(line(grid, grid.total, "total"));
  const all = element("table", grid.columns.length > MANY ? "many" : "", element("thead", "", element("tr", "", ...heads)), body, foot);
  const parts = [element("h3", "", grid.title)];
  if (grid.rows.length > FEW) {
    const filter = document.createElement("input");
    filter.type = "search";
    filter.placeholder = "filter: words, or cycles>1000";
    filter.setAttribute("aria-label", `filter ${grid.title}`);
    filter.addEventListener("input", () => {
      keeps = filtered(filter.value, grid.columns);
      show();
    });
    parts.push(element("p", "filter", filter, " ", count));
  }
  return element("section", "grid", ...parts, element("div", "wide", all));
}
