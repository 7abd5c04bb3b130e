"""Glenside in 300 lines: maps a convolution to a fixed-size matrix unit by equality saturation.

Run `python examples/glenside_in_300_lines.py`. It needs numpy only and imports nothing of glenside. Read it in order:
1. access patterns, 2. the e-graph, 3. three rewrite rules, 4. saturation, 5. extraction by a cost model, 6. the exact
check by randomized polynomial identity testing, 7. a 3x3 convolution on a unit of 4 x 4 multipliers.
"""

from collections.abc import Callable, Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

# --- 1. Access patterns ---------------------------------------------------------------------------
# A compiler for matrix units must know which axes of a tensor are iterated over and which are consumed by the
# computation. An access pattern says just that: a tensor with a split point. The axes before it are the shape, those
# after it the item shape. (16)(18) is 16 items, each a vector of 18 elements. A matrix product is a cartesian product,
# which pairs every row of A with every column of B, and a dot product of each pair:
#
#     dot(cartesian(A: (M)(K), B: (N)(K)): (M N)(2 K)): (M N)()
#
# A convolution is the same term: only the items of A are windows of the image. So one rule serves both.


class Access(NamedTuple):
    """An array with a split point: `array.shape[:split]` is the shape, the rest is the item shape."""

    array: np.ndarray
    split: int
    shape = property(lambda self: self.array.shape[: self.split])
    item = property(lambda self: self.array.shape[self.split :])


class Node(NamedTuple):
    """An operator, its attributes and its operands: terms here, e-class ids in the e-graph, names in a pattern."""

    op: str
    attributes: tuple[Any, ...]
    operands: tuple[Any, ...]


# Numbers are residues modulo a prime, for the check in section 6. A product of two residues fits into 62 bits.
PRIME = 2**31 - 1
ROWS, COLUMNS = 4, 4  # the matrix unit holds ROWS x COLUMNS weights


def cartesian_(a: Access, b: Access) -> Access:
    """(s)(t), (u)(t) -> (s u)(2 t): every item of a paired with every item of b."""
    left = a.array.reshape(a.shape + (1,) * len(b.shape) + a.item)
    pairs = np.stack(np.broadcast_arrays(left, b.array), axis=-1 - len(a.item))
    return Access(pairs, len(a.shape + b.shape))


def dot_(a: Access) -> Access:
    """(s)(2 t) -> (s)(): the dot product of the two halves of each item."""
    pairs = a.array.reshape(*a.shape, 2, -1)
    return Access((pairs[..., 0, :] * pairs[..., 1, :] % PRIME).sum(-1) % PRIME, len(a.shape))


def unit_(a: Access, b: Access) -> Access:
    """The hardware. (M)(K), (N)(K) -> (M N)(), where K and N are multiples of the size of the unit."""
    (m, k), (n, _) = a.array.shape, b.array.shape
    result = np.zeros((m, n), np.int64)
    for i in range(0, k, ROWS):
        for j in range(0, n, COLUMNS):
            weights = b.array[j : j + COLUMNS, i : i + ROWS]  # loaded once, then every row of a is streamed past it
            products = a.array[:, None, i : i + ROWS] * weights % PRIME
            result[:, j : j + COLUMNS] = (result[:, j : j + COLUMNS] + products.sum(-1)) % PRIME
    return Access(result, 2)


# The only place that says what an operator does. The interpreter, the types and the check follow from this table.
MEANING: dict[str, Callable[..., Access]] = {
    "tensor": lambda name, dims: Access(np.zeros(dims, np.int64), 0),  # an input: here only its type is known
    "cartesian": cartesian_,
    "unit": unit_,
    "dot": dot_,
    "access": lambda a, split: Access(a.array, split),  # moves the split point
    "windows": lambda a, w: Access(sliding_window_view(a.array, w), len(w)),  # ()(C H W) -> (1 H' W')(C h w)
    "reshape": lambda a, shape, item: Access(a.array.reshape(shape + item), len(shape)),
    "transpose": lambda a, order: Access(a.array.transpose(order), a.split),  # of an access pattern without items
    "pad": lambda a, zeros: Access(np.pad(a.array, [(0, n) for n in zeros]), a.split),
    "crop": lambda a, dims: Access(a.array[tuple(slice(d) for d in dims)], a.split),  # the inverse of pad
}


def constructor(op: str) -> Callable[..., Node]:
    """Returns the function that builds nodes of an operator: operands first, then attributes."""
    operands = {"tensor": 0, "cartesian": 2, "unit": 2}.get(op, 1)
    return lambda *given: Node(op, given[operands:], given[:operands])


tensor, cartesian, unit, dot, access, windows, reshape, transpose, pad, crop = map(constructor, MEANING)


def evaluate(term: Node, inputs: dict[str, np.ndarray]) -> Access:
    """Computes a term: the interpreter is a fold over the table of meanings."""
    if term.op == "tensor":
        return Access(inputs[term.attributes[0]], 0)
    return MEANING[term.op](*(evaluate(t, inputs) for t in term.operands), *term.attributes)


# --- 2. The e-graph -------------------------------------------------------------------------------
# An e-class is a set of equal terms. An e-node is an operator whose operands are e-classes: it stands for many terms.
# The e-graph keeps a union-find (which e-classes are equal) and a hashcons (no e-node exists twice).


class EGraph:
    """E-nodes, e-classes, and for each e-class its type: an access pattern of zeros."""

    def __init__(self) -> None:
        self.parent: list[int] = []  # the union-find: a class is its own parent, or was merged into its parent
        self.classes: dict[Node, int] = {}  # the hashcons
        self.types: list[Access] = []

    def find(self, c: int) -> int:
        while self.parent[c] != c:
            c = self.parent[c]
        return c

    def add(self, term: Node | int) -> int:
        """Adds a term, whose leaves may be e-class ids, and returns its e-class."""
        if isinstance(term, int):
            return self.find(term)
        node = Node(term.op, term.attributes, tuple(self.add(t) for t in term.operands))
        if node not in self.classes:
            self.classes[node] = len(self.parent)
            self.parent.append(len(self.parent))
            # Infer the type by running the operator's meaning on zeros, so that types need no second definition.
            self.types.append(MEANING[node.op](*(self.types[c] for c in node.operands), *node.attributes))
        return self.find(self.classes[node])

    def union(self, a: int, b: int) -> bool:
        """Records that two e-classes are equal. Returns True if that was new."""
        a, b = self.find(a), self.find(b)
        assert (self.types[a].shape, self.types[a].item) == (self.types[b].shape, self.types[b].item), "types differ"
        self.parent[max(a, b)] = min(a, b)
        return a != b

    def rebuild(self) -> None:
        """Restores congruence: if operands are equal, so are results. Merges e-nodes that have become the same."""
        changed = True
        while changed:
            changed = False
            old, self.classes = self.classes, {}
            for node, c in old.items():
                node = Node(node.op, node.attributes, tuple(self.find(o) for o in node.operands))
                changed |= self.union(self.classes.setdefault(node, c), c)
        self.classes = {node: self.find(c) for node, c in self.classes.items()}

    def matches(self, pattern: Node | str, c: int, bound: dict[str, int]) -> Iterator[dict[str, int]]:
        """Yields every way in which a pattern matches a term of an e-class (e-matching). A string is a variable."""
        if isinstance(pattern, str):
            if bound.setdefault(pattern, c) == c:
                yield bound
            return
        for node, home in self.classes.items():
            if home == c and (node.op, len(node.operands)) == (pattern.op, len(pattern.operands)):
                found = [bound]
                for sub, operand in zip(pattern.operands, node.operands, strict=True):
                    found = [extended for b in found for extended in self.matches(sub, operand, dict(b))]
                yield from found


# --- 3. Rewrite rules -----------------------------------------------------------------------------
# Left side: a pattern, here dot(cartesian(a, b)) for all three rules, below product(a, b). Right side: a function of
# the matched e-classes a, b and their types A, B, or None where its guard does not hold.
def flatten(a: int, b: int, A: Access, B: Access) -> Node | None:
    """product(a, b) = reshape(product(flat a, flat b)), where flat: (s)(t) -> (prod s)(prod t).

    Sound because a dot product does not depend on how the elements of both items are numbered, if it is the same
    numbering, and the results keep their order. On windows this is im2col. Guard: something is left to flatten.
    """
    if (A.array.ndim, A.split, B.array.ndim, B.split) == (2, 1, 2, 1):
        return None
    flat_a = reshape(a, (prod(A.shape),), (prod(A.item),))
    flat_b = reshape(b, (prod(B.shape),), (prod(B.item),))
    return reshape(dot(cartesian(flat_a, flat_b)), A.shape + B.shape, ())


def swap(a: int, b: int, A: Access, B: Access) -> Node | None:
    """product(a, b) = transpose(product(b, a)): the other operand becomes the stationary one.

    Sound because multiplication commutes. The axes of the result are in the other order, so it is transposed.
    """
    n = len(B.shape)
    return transpose(dot(cartesian(b, a)), (*range(n, n + len(A.shape)), *range(n)))


def map_to_unit(a: int, b: int, A: Access, B: Access) -> Node | None:
    """product(a, b) = crop(unit(pad a, pad b)), padded with zeros to multiples of the size of the unit.

    Sound because zeros add nothing to a sum, and the additional columns are cropped. Guard: (M)(K) and (N)(K).
    """
    if (A.array.ndim, A.split, B.array.ndim, B.split) != (2, 1, 2, 1):
        return None
    (m, k), (n, _) = A.array.shape, B.array.shape
    more_k, more_n = -k % ROWS, -n % COLUMNS  # zeros to add
    return crop(unit(pad(a, (0, more_k)), pad(b, (more_n, more_k))), (m, n))


PRODUCT, RULES = dot(cartesian("a", "b")), (flatten, swap, map_to_unit)


# --- 4. Saturation --------------------------------------------------------------------------------
# A rule adds its right side to the e-class of its left side. Nothing is overwritten, so the order of rules does not
# matter. Once an iteration adds nothing, the e-graph is saturated: it holds every program that the rules can reach.
def saturate(graph: EGraph) -> int:
    """Applies all rules until nothing changes. Returns the number of iterations."""
    for iteration in range(1, 100):
        # Find all matches first, then apply them: e-classes do not change during the search.
        found = [(c, m) for c in set(graph.classes.values()) for m in graph.matches(PRODUCT, c, {})]
        new = False
        for c, m in found:
            for rule in RULES:
                right = rule(m["a"], m["b"], graph.types[m["a"]], graph.types[m["b"]])
                if right is not None:
                    new |= graph.union(c, graph.add(right))
        graph.rebuild()
        if not new:
            return iteration
    raise RuntimeError("not saturated after 100 iterations")


# --- 5. Extraction --------------------------------------------------------------------------------
def cycles(node: Node, types: list[Access]) -> int:
    """The cost model: cycles of one operator. Moving data is free here; Glenside's npu target counts it as well."""
    sizes = [types[o].array.shape for o in node.operands]
    if node.op == "unit":  # each tile of weights takes a cycle for each row of a
        return prod(sizes[0]) * int(sizes[1][0]) // (ROWS * COLUMNS)
    return prod(sizes[0]) // 2 if node.op == "dot" else 0  # a scalar processor: one multiplication per cycle


def extract(graph: EGraph, root: int) -> tuple[int, Node]:
    """Returns the cycles and the cheapest term of an e-class; of equal costs the smallest term.

    As Bellman-Ford: improves the best term of each e-class until none becomes cheaper. Exact for costs of trees.
    """
    best: dict[int, tuple[int, int, Node]] = {}  # for each e-class: cycles, number of operators, term
    changed = True
    while changed:
        changed = False
        for node, c in graph.classes.items():
            if all(o in best for o in node.operands):
                parts = [best[o] for o in node.operands]
                cost = cycles(node, graph.types) + sum(p[0] for p in parts), 1 + sum(p[1] for p in parts)
                if c not in best or cost < best[c][:2]:
                    best[c] = (*cost, Node(node.op, node.attributes, tuple(p[2] for p in parts)))
                    changed = True
    return best[graph.find(root)][0], best[graph.find(root)][2]


# --- 6. The exact check ---------------------------------------------------------------------------
# Floats would compare up to a tolerance, which hides errors. But each element of a result is a polynomial in the
# inputs, here of degree 2. The Schwartz-Zippel lemma: two different polynomials of degree d over a field of P elements
# agree at a random point with probability at most d / P. So evaluate both programs at random points modulo a prime. If
# they differ once, they are different: that is certain. If they agree at n points, the answer "equal" is wrong with
# probability at most (2 / (2^31 - 1))^n, below 10^-27 for n = 3. (No coefficient here is a multiple of the prime.)
def equal(one: Node, other: Node, inputs: dict[str, tuple[int, ...]], points: int = 3, seed: int = 0) -> bool:
    """True if two programs agree at random points of the field of integers modulo PRIME."""
    random = np.random.default_rng(seed)
    for _ in range(points):
        values = {name: random.integers(0, PRIME, dims) for name, dims in inputs.items()}
        if not np.array_equal(evaluate(one, values).array, evaluate(other, values).array):
            return False
    return True


# --- 7. The example -------------------------------------------------------------------------------
def show(term: Node, indent: str = "") -> str:
    """Formats a term, one operator per line, operands indented below it."""
    head = f"{indent}{term.op} {' '.join(str(a) for a in term.attributes)}".rstrip()
    return "\n".join([head, *(show(t, indent + "  ") for t in term.operands)])


def main() -> None:
    """Maps a 3x3 convolution to the matrix unit, checks the result, and refutes a wrong program."""
    inputs = {"image": (2, 6, 6), "weights": (3, 2, 3, 3)}  # 2 channels of 6 x 6; 3 filters of 2 channels of 3 x 3
    image, weights = (tensor(name, dims) for name, dims in inputs.items())
    a, b = windows(image, (2, 3, 3)), access(weights, 1)  # (1 4 4)(2 3 3) and (3)(2 3 3)
    given = dot(cartesian(a, b))
    graph = EGraph()
    root = graph.add(given)
    given_cycles = extract(graph, root)[0]  # before saturation the e-graph holds this program only
    iterations = saturate(graph)
    found_cycles, found = extract(graph, root)
    print(f"the program\n{show(given, '  ')}\nbecomes\n{show(found, '  ')}")
    sizes = f"{len(graph.classes)} e-nodes in {len(set(graph.classes.values()))} e-classes"
    print(f"saturated after {iterations} iterations: {sizes}")
    verdict = "equal and cheaper" if equal(given, found, inputs) and found_cycles < given_cycles else "wrong or slower"
    print(f"{verdict}: {given_cycles} -> {found_cycles} cycles on a unit of {ROWS} x {COLUMNS}")

    # The rule swap without its transpose: all shapes agree, so a type checker accepts it. The check does not.
    wrong = reshape(dot(cartesian(b, a)), (1, 4, 4, 3), ())
    print(f"swap without its transpose: {'EQUAL' if equal(given, wrong, inputs) else 'refuted'}")


if __name__ == "__main__":
    main()
