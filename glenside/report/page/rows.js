// Rows of a table: which of them a filter leaves, and their order. Nothing here draws.

/** @typedef {{name: string, words: boolean, long?: boolean}} Column */

/** The number that a cell is, as tables write them: 1,024; x 5; 12.5 %; 1.5e+20; null where it is none. @param {string} cell */
export function numberOf(cell) {
  const plain = cell.trim().replace(/^x (?=\d)/, "").replace(/,(?=\d)/g, "").replace(/ ?%$/, "");
  return /^-?\d+(\.\d+)?(e[+-]?\d+)?$/i.test(plain) ? Number(plain) : null;
}

/** The places of rows in order of a column: numbers by size and what is none after them, words by alphabet.
 * @param {string[][]} rows @param {number} column @param {boolean} falling */
export function ordered(rows, column, falling) {
  const sign = falling ? -1 : 1;
  const numbers = rows.map((row) => numberOf(row[column]));
  const order = rows.map((_, i) => i);
  return order.sort((a, b) => {
    const [x, y] = [numbers[a], numbers[b]];
    if (x !== null && y !== null && x !== y) return sign * (x - y);
    if ((x === null) !== (y === null)) return x === null ? 1 : -1;
    if (x === null) return sign * rows[a][column].localeCompare(rows[b][column], "en", { numeric: true }) || a - b;
    return a - b;
  });
}

/** @type {Record<string, (a: number, b: number) => boolean>} */
const COMPARISONS = {
  ">=": (a, b) => a >= b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, "<": (a, b) => a < b, "=": (a, b) => a === b,
};

/** The column that a filter means by a word: the last whose name ends so, else the first that has it.
 * @param {string} word @param {Column[]} columns */
function meant(word, columns) {
  const names = columns.map((column) => column.name.toLowerCase());
  const ends = names.map((name) => name.endsWith(word)).lastIndexOf(true);
  return ends >= 0 ? ends : names.findIndex((name) => name.includes(word));
}

/** What a filter of a table may say, with one of its own amounts. @param {Column[]} columns @param {string[][]} rows */
export function hint(columns, rows) {
  const word = columns.map((column, i) => {
    const own = /[a-z]{2,}$/i.exec(column.name)?.[0].toLowerCase() ?? "";
    return own && meant(own, columns) === i && rows.some((row) => numberOf(row[i]) !== null) ? own : "";
  });
  const first = word.find(Boolean);
  return first ? `filter: words, or ${first}>1000` : "filter: words";
}

/** What a filter asks of a row: every word stands in some cell, and `cycles>1000` holds of a column whose name ends so.
 * @param {string} text @param {Column[]} columns @returns {(row: string[]) => boolean} */
export function filtered(text, columns) {
  const tests = text.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
    const [, name, comparison, amount] = /^([^<>=]+)(>=|<=|>|<|=)([\d.,]+)$/.exec(word) ?? [];
    const wanted = amount === undefined ? null : numberOf(amount);
    const place = name ? meant(name, columns) : -1;
    if (wanted !== null && place >= 0) {
      return (/** @type {string[]} */ row) => {
        const own = numberOf(row[place]);
        return own !== null && COMPARISONS[comparison](own, wanted);
      };
    }
    return (/** @type {string[]} */ row) => row.some((cell) => cell.toLowerCase().includes(word));
  });
  return (row) => tests.every((test) => test(row));
}
