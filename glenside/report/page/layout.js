// Where boxes and edges go. It runs in a worker where there are workers, after dagre, which is the global `dagre`.

/** @typedef {{id: number, width: number, height: number, ports: number[]}} Sized ports: y of each row within the box */
/** @typedef {{boxes: Sized[], edges: import("./walk.js").Edge[]}} Job */
/** @typedef {{id: number, x: number, y: number, width: number, height: number}} Placed */
/** @typedef {{from: number, row: number, to: number, path: string, back: boolean}} Routed */
/** @typedef {{boxes: Placed[], edges: Routed[], width: number, height: number}} Layout */

const ENTRY = 13; // where edges reach a box, from its top
const TIP = 9; // of an edge, straight into its box
const GAP = 60; // between columns

/**
 * Columns from left to right (Sugiyama): boxes begin at the left of their column, an edge runs level through a column in
 * the place that was kept for it there and bends between columns, where no box is. So none runs through a box.
 * @param {Job} job @param {any} dagre
 * @returns {Layout}
 */
export function arrange(job, dagre) {
  const graph = new dagre.graphlib.Graph();
  const large = job.boxes.length > 250;
  graph.setGraph({ rankdir: "LR", nodesep: 22, edgesep: 12, ranksep: GAP, acyclicer: "greedy", ranker: large ? "longest-path" : "network-simplex" });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const { id, width, height } of job.boxes) graph.setNode(String(id), { width, height });
  // What was chosen weighs more, so that it runs straight on, and of a cycle another edge runs back.
  for (const { from, to } of job.edges) if (from !== to) graph.setEdge(String(from), String(to), { weight: 1 });
  for (const { from, to, firm } of job.edges) if (from !== to && firm) graph.edge(String(from), String(to)).weight = 8;
  dagre.layout(graph);

  /** @type {Map<number, {left: number, right: number}>} */
  const columns = new Map();
  /** @param {number} x */
  const key = (x) => Math.round(x);
  for (const { id, width } of job.boxes) {
    const { x } = graph.node(String(id));
    const known = columns.get(key(x)) ?? { left: Infinity, right: -Infinity };
    columns.set(key(x), { left: Math.min(known.left, x - width / 2), right: Math.max(known.right, x + width / 2) });
  }
  /** @type {Map<number, Placed & {column: {left: number, right: number}, ports: number[]}>} */
  const placed = new Map();
  for (const { id, width, height, ports } of job.boxes) {
    const { x, y } = graph.node(String(id));
    const column = columns.get(key(x)) ?? { left: x, right: x };
    placed.set(id, { id, x: column.left, y: y - height / 2, width, height, column, ports });
  }
  const edges = job.edges.flatMap(({ from, row, to }) => {
    const a = placed.get(from);
    const b = placed.get(to);
    if (!a || !b || from === to) return [];
    /** @type {{x: number, y: number}[]} */
    const points = graph.edge(String(from), String(to)).points;
    const back = b.column.left < a.column.left;
    const levels = points.slice(1, -1).flatMap(({ x, y }) => {
      const column = columns.get(key(x));
      return column && column !== a.column && column !== b.column ? [{ column, y }] : [];
    });
    return [{ from, row, to, back, path: route(a, a.y + a.ports[row], b, levels, back) }];
  });
  const all = [...placed.values()];
  const width = Math.max(0, ...all.map((box) => box.x + box.width));
  const height = Math.max(0, ...all.map((box) => box.y + box.height));
  return { boxes: all.map(({ id, x, y, width, height }) => ({ id, x, y, width, height })), edges, width, height };
}

/**
 * @param {Placed & {column: {left: number, right: number}}} a
 * @param {number} y where it leaves
 * @param {Placed & {column: {left: number, right: number}}} b
 * @param {{column: {left: number, right: number}, y: number}[]} levels columns that it passes
 * @param {boolean} back whether it runs from right to left
 */
function route(a, y, b, levels, back) {
  /** @param {{left: number, right: number}} column */
  const near = (column) => (back ? column.right : column.left);
  /** @param {{left: number, right: number}} column */
  const far = (column) => (back ? column.left : column.right);
  let path = `M${round(back ? a.x : a.x + a.width)} ${round(y)}H${round(far(a.column))}`;
  let at = { x: far(a.column), y };
  for (const level of levels) {
    path += bend(at, { x: near(level.column), y: level.y }) + `H${round(far(level.column))}`;
    at = { x: far(level.column), y: level.y };
  }
  const end = { x: near(b.column) + (back ? TIP : -TIP), y: b.y + ENTRY };
  return `${path}${bend(at, end)}H${round(back ? b.x + b.width : b.x)}`;
}

/** @param {{x: number, y: number}} a @param {{x: number, y: number}} b */
function bend(a, b) {
  const middle = round((a.x + b.x) / 2);
  return `C${middle} ${round(a.y)} ${middle} ${round(b.y)} ${round(b.x)} ${round(b.y)}`;
}

/** @param {number} value */
function round(value) {
  return Math.round(value * 10) / 10;
}
