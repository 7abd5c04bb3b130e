// Where boxes and edges go. It runs in a worker where there are workers, after dagre, which is the global `dagre`.

/** @typedef {{id: number, width: number, height: number, ports: number[]}} Sized ports: y of each row within the box */
/** @typedef {{boxes: Sized[], edges: import("./walk.js").Edge[]}} Job */
/** @typedef {{id: number, x: number, y: number, width: number, height: number}} Placed */
/** @typedef {{from: number, row: number, to: number, path: string, back: boolean}} Routed */
/** @typedef {{boxes: Placed[], edges: Routed[], width: number, height: number}} Layout */

const ENTRY = 13; // where edges reach a box, from its top
const TIP = 9; // of an edge, straight into its box
const GAP = 60; // between columns
const STEP = 24; // between boxes of a stack
const TALLEST = 540; // of a stack, about what one sees at once
const SIDE = 24; // from the left of a stack, where its edges run down

/**
 * Boxes in stacks: where one box is all that another reads, and nothing else reads it, it stands below that one. Chains,
 * of which programs mostly consist, so take no column for each of their steps.
 * @param {Job} job
 * @returns {Sized[][]}
 */
export function stacks(job) {
  /** @type {Map<number, Set<number>>} */
  const below = new Map();
  /** @type {Map<number, Set<number>>} */
  const above = new Map();
  for (const { id } of job.boxes) [below, above].forEach((some) => some.set(id, new Set()));
  for (const { from, to } of job.edges) {
    if (from === to) continue;
    below.get(from)?.add(to);
    above.get(to)?.add(from);
  }
  const sizes = new Map(job.boxes.map((box) => [box.id, box]));
  /** @type {Map<number, number>} */
  const next = new Map();
  for (const [a, some] of below) {
    const [b] = some;
    if (some.size === 1 && above.get(b)?.size === 1) next.set(a, b);
  }
  const followed = new Set(next.values());
  const left = new Set(sizes.keys());
  /** @type {Sized[][]} */
  const found = [];
  // Last come those of a cycle that nothing else reads, of which any may be the first.
  for (const first of [...[...left].filter((id) => !followed.has(id)), ...followed]) {
    /** @type {Sized[]} */
    let stack = [];
    let tall = 0;
    for (let at = /** @type {number | undefined} */ (first); at !== undefined && left.has(at); at = next.get(at)) {
      const box = /** @type {Sized} */ (sizes.get(at));
      const own = below.get(at);
      // One that leads back to a box above it, in the same stack, stands apart: its edge has to leave the column.
      if (stack.length && (tall + STEP + box.height > TALLEST || stack.some(({ id }) => own?.has(id)))) {
        found.push(stack);
        [stack, tall] = [[], 0];
      }
      tall += (stack.length ? STEP : 0) + box.height;
      stack.push(box);
      left.delete(at);
    }
    if (stack.length) found.push(stack);
  }
  return found;
}

/**
 * Columns from left to right (Sugiyama) of stacks: they begin at the left of their column, an edge runs level through a
 * column in the place that was kept for it there and bends between columns, where no box is. So none runs through a box.
 * @param {Job} job @param {any} dagre
 * @returns {Layout}
 */
export function arrange(job, dagre) {
  const graph = new dagre.graphlib.Graph();
  const found = stacks(job);
  const large = found.length > 250;
  /** @type {Map<number, number>} the stack of each box, by the id of its first */
  const stackOf = new Map();
  for (const stack of found) for (const { id } of stack) stackOf.set(id, stack[0].id);
  /** @param {number} id */
  const name = (id) => String(stackOf.get(id));
  graph.setGraph({ rankdir: "LR", nodesep: 22, edgesep: 12, ranksep: GAP, acyclicer: "greedy", ranker: large ? "longest-path" : "network-simplex" });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const stack of found) {
    const height = stack.reduce((sum, box) => sum + box.height + STEP, -STEP);
    graph.setNode(name(stack[0].id), { width: Math.max(...stack.map((box) => box.width)), height });
  }
  // What was chosen weighs more, so that it runs straight on, and of a cycle another edge runs back.
  const between = job.edges.filter(({ from, to }) => stackOf.get(from) !== stackOf.get(to));
  for (const { from, to } of between) graph.setEdge(name(from), name(to), { weight: 1 });
  for (const { from, to, firm } of between) if (firm) graph.edge(name(from), name(to)).weight = 8;
  dagre.layout(graph);

  /** @type {Map<number, {left: number, right: number}>} */
  const columns = new Map();
  /** @param {number} x */
  const key = (x) => Math.round(x);
  for (const [{ id }] of found) {
    const { x, width } = graph.node(name(id));
    const known = columns.get(key(x)) ?? { left: Infinity, right: -Infinity };
    columns.set(key(x), { left: Math.min(known.left, x - width / 2), right: Math.max(known.right, x + width / 2) });
  }
  /** @type {Map<number, Placed & {column: {left: number, right: number}, ports: number[]}>} */
  const placed = new Map();
  for (const stack of found) {
    const { x, y, height } = graph.node(name(stack[0].id));
    const column = columns.get(key(x)) ?? { left: x, right: x };
    let top = y - height / 2;
    for (const box of stack) {
      placed.set(box.id, { ...box, x: column.left, y: top, column });
      top += box.height + STEP;
    }
  }
  /** @type {Map<number, number>} edges that run down from a box within its stack */
  const beside = new Map();
  const edges = job.edges.flatMap(({ from, row, to }) => {
    const a = placed.get(from);
    const b = placed.get(to);
    if (!a || !b || from === to) return [];
    if (stackOf.get(from) === stackOf.get(to)) {
      const number = beside.get(from) ?? 0;
      beside.set(from, number + 1);
      const x = round(a.x + Math.min(SIDE + 12 * number, Math.min(a.width, b.width) - 8));
      return [{ from, row, to, back: false, path: `M${x} ${round(a.y + a.height)}V${round(b.y)}` }];
    }
    /** @type {{x: number, y: number}[]} */
    const points = graph.edge(name(from), name(to)).points;
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
