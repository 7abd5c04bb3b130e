"""Draws instances of the equations that TASO (SOSP 2019) and TENSAT (MLSys 2021) published.

`published_substitutions.txt` has one equation a line, in a notation of ours. `taso-N` is the N-th substitution of
TASO's file, `tensat-N` one that TENSAT adds to it, `property-N` an operator property by which TASO proves its own.
Results are separated by commas. After `where` stands a guard that the equation needs and that is not published.

    a b c d       matrices, or arrays of any rank where only elements are computed; r s are numbers
    x y z t       images (N C H W); u v w are filters (O C/groups h w)
    a @ b, a + b, a * b       product of matrices, sum and product of elements
    conv          convolution of stride 1 that keeps the size of the image; it has C / (C/groups) groups
    conv_2        the same with stride 2, half the size
    conv_same     with any strides, padded as conv; conv_any: or not padded
    .._relu, .._f             followed by relu; by any function of elements
    cat(axis, ..)             concatenation
    split(axis, a)            two parts along an axis, the first as large as the first result of the left side
    scale(a, s)               every element times s
    merge(u)                  filters for half as many groups, with zeros
    enlarge(u, v)             filters with zeros around them, as large as those of v
    average, maximum          pools of any window and strides, padded or not; an average counts the padding
    average_same              an average pool of stride 1 with the window of the constant beside it
    pool_kernel(x)            filters that average, one group for each channel, of the window of the average pool
    identity_kernel(x)        filters that are 1 in the middle, one group for each channel
    identity(a), ones(a)      the identity matrix by which a can be multiplied; ones, as many as a has elements
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import glenside as gl
from glenside.builder import layout
from glenside.builder.pointwise import compute
from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.program import Program
from glenside.ir.term import Term, build

FUNCTIONS = {"": (), "_relu": ("relu",), "_f": ("relu", "tanh", "sigmoid")}
"""Suffix of a convolution -> the functions that follow it."""
_TRIES = 2_000
_CONV = re.compile(r"(conv(?:_2|_same|_any)?)(_relu|_f|)$")


@dataclass(frozen=True)
class Substitution:
    """A published equation; `guard` names a condition that it needs beside those published."""

    name: str
    left: tuple[ast.expr, ...]
    right: tuple[ast.expr, ...]
    text: str
    guard: str = ""


@dataclass
class Instance:
    """Both sides at some sizes.

    groups, filters, strides  the groups, the filters of one group and the stride of each convolution of the left side
    """

    left: Program
    right: Program
    groups: list[int]
    filters: list[int]
    strides: list[int]


GUARDS: dict[str, Callable[[Instance], bool]] = {
    "one group": lambda one: set(one.groups) == {1},
    "equal filters of a group": lambda one: len(set(one.filters)) == 1,
    "strides of 1 and 2": lambda one: max(one.strides) <= 2,
}


def published() -> list[Substitution]:
    """Reads the table."""
    found = []
    for line in Path(__file__).with_suffix(".txt").read_text().splitlines():
        name, equation = line.split(": ")
        equation, _, guard = equation.partition(" where ")
        sides = [ast.parse(f"({side},)", mode="eval").body for side in equation.split(" == ")]
        left, right = (tuple(side.elts) for side in sides if isinstance(side, ast.Tuple))
        found.append(Substitution(name, left, right, equation, guard))
    return found


Size = tuple[str, ...]
"""The size of an axis: a sum of unknown sizes."""


@dataclass
class _Sizes:
    """Finds which unknown sizes are equal.

    dense  all convolutions have one group
    """

    dense: bool
    rank: int
    equal: dict[str, str] = field(default_factory=dict)
    known: dict[str, tuple[Size, ...]] = field(default_factory=dict)
    count: int = 0

    def fresh(self) -> Size:
        self.count += 1
        return (f"size-{self.count}",)

    def root(self, name: str) -> str:
        while name in self.equal:
            name = self.equal[name]
        return name

    def unify(self, one: Sequence[Size], other: Sequence[Size]) -> None:
        for a, b in zip(one, other, strict=True):
            for x, y in zip(a, b, strict=False) if len(a) == len(b) else ():
                x, y = self.root(x), self.root(y)
                if x != y:
                    self.equal[x] = y

    def variable(self, name: str) -> tuple[Size, ...]:
        rank = 0 if name in "rs" else 4 if name in "xyztuvw" else self.rank
        return self.known.setdefault(name, tuple(self.fresh() for _ in range(rank)))

    def of(self, node: ast.expr) -> tuple[Size, ...]:
        """Returns the sizes of an expression; those that are unknown are new."""
        if isinstance(node, ast.Name):
            return self.variable(node.id)
        if isinstance(node, ast.BinOp):
            a, b = self.of(node.left), self.of(node.right)
            if isinstance(node.op, ast.MatMult):
                self.unify(a[1:], b[:1])
                return a[0], b[1]
            self.unify(a, b)
            return a
        assert isinstance(node, ast.Call)
        assert isinstance(node.func, ast.Name)
        name, known = node.func.id, [self.of(each) for each in node.args if not isinstance(each, ast.Constant)]
        if conv := _CONV.match(name):
            x, u = known
            if self.dense:
                self.unify(x[1:2], u[1:2])
            space = x[2:] if conv[1] == "conv" else tuple(self.fresh() for _ in x[2:])
            return x[0], u[0], *space
        if name == "cat":
            axis = _constant(node)
            first, *others = known
            for other in others:
                self.unify(first[:axis] + first[axis + 1 :], other[:axis] + other[axis + 1 :])
            return *first[:axis], tuple(part for one in known for part in one[axis]), *first[axis + 1 :]
        if name == "transpose":
            return known[0][::-1]
        if name in ("relu", "scale", "ones"):
            return known[0]
        return tuple(self.fresh() for _ in known[0])


def _constant(node: ast.Call) -> int:
    assert isinstance(node.args[0], ast.Constant)
    assert isinstance(node.args[0].value, int)
    return node.args[0].value


@dataclass
class _Terms:
    """Builds the terms of both sides.

    padded, window, stride, function  what `conv_any` and pools have in all places, and `.._f`
    """

    builder: gl.Builder
    dims: dict[str, tuple[int, ...]]
    padded: bool
    window: int
    stride: int
    function: str
    first: Term | None = None
    groups: list[int] = field(default_factory=list)
    filters: list[int] = field(default_factory=list)
    strides: list[int] = field(default_factory=list)
    known: dict[str, Term] = field(default_factory=dict)

    def variable(self, name: str) -> Term:
        if name not in self.known:
            self.known[name] = self.builder.input(name, self.dims[name])
        return self.known[name]

    def of(self, node: ast.expr) -> tuple[Term, ...]:
        """Returns the results of an expression: two of a split."""
        if isinstance(node, ast.Name):
            return (self.variable(node.id),)
        if isinstance(node, ast.BinOp):
            make = {
                ast.MatMult: self.builder.matmul,
                ast.Add: _same(gl.Builder.add),
                ast.Mult: _same(gl.Builder.multiply),
            }
            return (make[type(node.op)](self.one(node.left), self.one(node.right)),)
        assert isinstance(node, ast.Call)
        assert isinstance(node.func, ast.Name)
        name, terms = node.func.id, [self.one(each) for each in node.args if not isinstance(each, ast.Constant)]
        if conv := _CONV.match(name):
            found = self.conv(conv[1], *terms)
            function = self.function if conv[2] == "_f" else conv[2][1:]
            return (compute(function, found) if function else found,)
        if name == "cat":
            return (layout.concatenate(terms, _constant(node)),)
        if name == "split":
            axis = _constant(node)
            assert self.first is not None
            at = self.first.access.dims[axis]
            whole = terms[0].access.dims[axis]
            return tuple(layout.slice_axis(terms[0], axis, low, high) for low, high in ((0, at), (at, whole)))
        return (getattr(self, name)(*terms),)

    def one(self, node: ast.expr) -> Term:
        (found,) = self.of(node)
        return found

    def conv(self, name: str, x: Term, u: Term) -> Term:
        stride = {"conv": 1, "conv_2": 2}.get(name, self.stride)
        dims, (filters, channels, *window) = x.access.dims, u.access.dims
        groups = max(dims[1] // channels, 1)
        self.groups.append(groups)
        self.filters.append(filters // groups)
        self.strides.append(stride)
        padding = self.padding(dims[2:], window, stride) if name != "conv_any" or self.padded else 0
        return self.builder.conv(x, u, strides=stride, padding=padding, groups=groups)

    def padding(self, sizes: Sequence[int], window: Sequence[int], stride: int) -> list[tuple[int, int]]:
        """Returns the padding by which there are size / stride windows, rounded up."""
        totals = [max(k - (n % stride or stride), 0) for n, k in zip(sizes, window, strict=True)]
        return [((total + 1) // 2, total // 2) for total in totals]

    def relu(self, a: Term) -> Term:
        return compute("relu", a)

    def transpose(self, a: Term) -> Term:
        return layout.transpose(a, range(a.access.rank)[::-1])

    def scale(self, a: Term, s: Term) -> Term:
        return self.builder.multiply(a, s)

    def merge(self, u: Term) -> Term:
        """Puts the filters of each two groups side by side, with zeros for the other group's channels."""
        filters, channels, *window = u.access.dims
        groups = self.groups[0]
        if groups % 2:
            raise BadInput("an odd number of groups")
        parts = layout.reshape(u, (groups // 2, 2, filters // groups, channels, *window))
        halves = [layout.slice_axis(parts, 1, n, n + 1) for n in (0, 1)]
        none = [(0, 0)] * 3
        sides = [
            layout.pad(half, [*none, edge, *((0, 0) for _ in window)])
            for half, edge in zip(halves, ((0, channels), (channels, 0)), strict=True)
        ]
        return layout.reshape(layout.concatenate(sides, 1), (filters, 2 * channels, *window))

    def enlarge(self, u: Term, v: Term) -> Term:
        more = [large - small for large, small in zip(v.access.dims[2:], u.access.dims[2:], strict=True)]
        if any(n < 0 or n % 2 for n in more):
            raise BadInput("there is no middle")
        return layout.pad(u, [(0, 0), (0, 0), *((n // 2, n // 2) for n in more)])

    def average(self, x: Term) -> Term:
        return gl.Builder.average_pool(x, self.window, strides=self.stride, padding=self._of_pool(x))

    def maximum(self, x: Term) -> Term:
        return gl.Builder.max_pool(x, self.window, strides=self.stride, padding=self._of_pool(x))

    def average_same(self, x: Term) -> Term:
        padding = self.padding(x.access.dims[2:], (self.window, self.window), 1)
        return gl.Builder.average_pool(x, self.window, strides=1, padding=padding)

    def _of_pool(self, x: Term) -> Any:
        return self.padding(x.access.dims[2:], (self.window, self.window), self.stride) if self.padded else 0

    def pool_kernel(self, x: Term) -> Term:
        dims = (x.access.dims[1], 1, self.window, self.window)
        return self.builder.full(dims, f"1/{self.window**2}")

    def identity_kernel(self, x: Term) -> Term:
        middle = (self.window // 2, self.window // 2)
        if self.window % 2 == 0:
            raise BadInput("there is no middle")
        return layout.pad(self.builder.full((x.access.dims[1], 1, 1, 1), "1"), [(0, 0), (0, 0), middle, middle])

    def identity(self, a: Term) -> Term:
        n = a.access.dims[1]
        return layout.reshape(
            layout.pad_or_crop(
                layout.reshape(layout.pad(self.builder.full((n, 1), "1"), [(0, 0), (0, n)]), (n * (n + 1),)), [(0, -n)]
            ),
            (n, n),
        )

    def ones(self, a: Term) -> Term:
        return self.builder.full(a.access.dims, "1")


def _same(combine: Callable[[Term, Term], Term]) -> Callable[[Term, Term], Term]:
    """Returns the function of operands of the same dims: none is broadcast."""

    def combined(a: Term, b: Term) -> Term:
        if a.access.dims != b.access.dims:
            raise BadInput("different sizes")
        return combine(a, b)

    return combined


def instance(one: Substitution, seed: int, *, guarded: bool = True) -> Instance:
    """Draws sizes at which both sides have a meaning and the same types; with an odd seed, groups if there can be any.

    guarded  True: the guard holds; False: it does not
    """
    pick = random.Random(f"{one.name} {seed}")
    for attempt in range(_TRIES):
        grouped = seed % 2 == 1 and attempt < _TRIES // 4
        found = _drawn(one, pick, dense=attempt % 2 == 0 and not grouped)
        if found is not None and (not grouped or max(found.groups, default=2) > 1):
            if not one.guard or GUARDS[one.guard](found) is guarded:
                return found
    raise AssertionError(f"{one.name} has no sizes")


def _drawn(one: Substitution, pick: random.Random, dense: bool) -> Instance | None:
    any_rank = not re.search("@|cat|split|transpose|identity", one.text)
    sizes = _Sizes(dense, pick.choice((1, 2, 3)) if any_rank else 2)
    sides = [[sizes.of(each) for each in side] for side in (one.left, one.right)]
    if len(one.left) == len(one.right):
        for left, right in zip(*sides, strict=True):
            sizes.unify(left, right)
    window, stride, function = pick.choice((1, 2, 3)), pick.choice((1, 2, 3)), pick.choice(FUNCTIONS["_f"])
    terms = _Terms(gl.Builder(one.name), _dims(sizes, pick), pick.random() < 0.5, window, stride, function)
    try:
        left = [term for each in one.left for term in terms.of(each)]
        groups, filters, strides = (list(known) for known in (terms.groups, terms.filters, terms.strides))
        terms.first = left[0]
        right = [term for each in one.right for term in terms.of(each)]
    except GlensideError:
        return None
    dims = [[tuple(term.access.dims) for term in side] for side in (left, right)]
    if dims[0] != dims[1] or any(0 in each for each in dims[0]):
        return None
    programs = [Program(side[0] if len(side) == 1 else build("construct-tuple", *side)) for side in (left, right)]
    return Instance(programs[0], programs[1], groups, filters, strides)


def _dims(sizes: _Sizes, pick: random.Random) -> dict[str, tuple[int, ...]]:
    """Draws the sizes of variables."""
    values: dict[str, int] = {}
    dims = {}
    for name, known in sizes.known.items():
        for axis, size in enumerate(known):
            choices: Sequence[int] = (2, 3, 4, 5)
            if len(known) == 4:
                of_image = ((1, 2), (1, 2, 4), (3, 4, 5), (3, 4, 5))
                of_filters = ((1, 2, 3, 4), (1, 2, 3), (1, 3, 2), (1, 3, 2))
                choices = (of_image if name in "xyzt" else of_filters)[axis]
            for part in size:
                values.setdefault(sizes.root(part), pick.choice(choices))
        dims[name] = tuple(sum(values[sizes.root(part)] for part in size) for size in known)
    return dims
