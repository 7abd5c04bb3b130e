"""The declared equations and the code of the algebra agree: both sides have the same normal form."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_checks import saturated
from test_algebra import linear_attention, low_rank_constants, low_rank_update, two_matrices
from test_row_operators import FOUND, PRICES

from glenside.algebra import equations
from glenside.algebra.indices import Axis, Index, Operand
from glenside.algebra.monomials import Monomial
from glenside.algebra.normal_form import _EXPAND, normal_form
from glenside.algebra.row_operators import Affine, Relation, Selected, composed
from glenside.algebra.search import cheapest_algebra
from glenside.builder import Builder
from glenside.builder.layout import slice_axis, split_at
from glenside.builder.pointwise import multiply
from glenside.egraph.examples import smallest_terms
from glenside.egraph.rule import Rule
from glenside.fuzzing import soundness
from glenside.ir.term import Term, build, postorder
from glenside.ir.types import AccessType, Dims, Tensor
from glenside.proofs.status import summary
from glenside.rewrites import EQUATIONS, RULES
from glenside.semantics.interpreter import evaluate

Polynomial = dict[tuple[str, ...], Fraction]
"""Products of elements of tensors, with their coefficients."""
FACTOR = "(access-tensor factor)"


def _position(axis: Axis, values: dict[Index, int]) -> int:
    found = 0
    for index in axis:
        found = found * index.size + values[index]
    return found


def _assignments(one: Monomial, result: Axis) -> Iterator[dict[Index, int]]:
    """Yields all values of the indices under which no row operator replaces an element by 0."""
    sources = {row.source: row for row in one.rows}
    have = [i for operand in one.operands for i in operand.indices] + [i for row in one.rows for i in row.targets]
    free = [i for i in dict.fromkeys((*have, *result)) if i not in sources]
    for values in product(*(range(index.size) for index in free)):
        found = dict(zip(free, values, strict=True))
        waiting = list(sources.values())
        while waiting:
            row = next(row for row in waiting if all(index in found for index in row.targets))
            waiting.remove(row)
            if isinstance(row, Selected):
                at = tuple(_position(axis, found) for axis in row.axes)
                found[row.source] = int(evaluate([row.indices], {})[0][at])
                continue
            found[row.source] = row.offset + sum(c * found[index] for index, c in row.terms)
            if not row.valid[0] <= found[row.source] < row.valid[1]:
                break
        else:
            yield found


def _element(term: Term, at: tuple[int, ...]) -> Polynomial:
    """Returns an element of an operand: of a concatenation, that of the part where it is, and likewise of gaps."""
    (axis, *_) = term.attributes or (None,)
    if term.operator.name == "access":
        return _element(term.children[0], at)
    if term.operator.name == "access-concatenate":
        assert isinstance(axis, int)
        first, second = term.children
        size = first.access.dims[axis]
        moved = (*at[:axis], at[axis] - size, *at[axis + 1 :])
        return _element(first, at) if at[axis] < size else _element(second, moved)
    if term.operator.name == "access-dilate":
        x, (axis, gap) = term.children[0], term.attributes
        assert isinstance(axis, int)
        assert isinstance(gap, int)
        whole, rest = divmod(at[axis], gap + 1)
        return {} if rest else _element(x, (*at[:axis], whole, *at[axis + 1 :]))
    if not any(isinstance(a, Tensor) for each in postorder(term) for a in each.attributes):
        value = Fraction(float(evaluate([term], {})[0][at])).limit_denominator(1000)
        return {(): value} if value else {}
    elements = polynomials(term) if term.children else None
    return {(f"{term}{at}",): Fraction(1)} if elements is None else elements.get(at, {})


def _times(a: Polynomial, b: Polynomial) -> Polynomial:
    found: Polynomial = {}
    for (x, m), (y, n) in product(a.items(), b.items()):
        key = tuple(sorted((*x, *y)))
        found[key] = found.get(key, Fraction(0)) + m * n
    return found


@cache
def polynomials(term: Term) -> dict[tuple[int, ...], Polynomial] | None:
    """Returns elements that are not 0 as polynomials in elements of tensors, from the normal form of a term.

    None if the term itself is an operand of its form.
    """
    whole = split_at(term, term.access.rank)
    factor = build("access-tensor", Tensor("factor", term.access.dims, term.access.dtype))
    form = normal_form(multiply(whole, split_at(factor, term.access.rank)), lambda _: True)
    assert form is not None
    found: dict[tuple[int, ...], Polynomial] = {}
    for one in form.monomials:
        operands = [own for own in one.operands if not str(own.term).startswith(FACTOR)]
        if any(split_at(own.term, 0) is split_at(term, 0) for own in operands):
            return None
        for values in _assignments(one, form.indices):
            terms: Polynomial = {(): one.scale}
            for own in operands:
                terms = _times(terms, _element(own.term, tuple(_position(axis, values) for axis in own.axes)))
            sums = found.setdefault(tuple(_position(axis, values) for axis in form.axes), {})
            for key, c in terms.items():
                sums[key] = sums.get(key, Fraction(0)) + c
    return {at: {key: c for key, c in sums.items() if c} for at, sums in found.items()}


def _is_compared(term: Term) -> bool:
    """True for floats that have elements; tables of gathers stand for the numbers of linear maps."""
    known = isinstance(term.type, AccessType) and term.access.size > 0 and term.access.dtype == "float32"
    return known and all(each.operator.name != "linear-map" for each in postorder(term))


def _all(term: Term) -> list[Polynomial]:
    return [_element(term, at) for at in product(*map(range, term.access.dims))]


@pytest.mark.parametrize("rule", EQUATIONS.values(), ids=lambda r: r.name)
def test_both_sides_have_the_same_normal_form(rule: Rule) -> None:
    compared = 0
    for example in rule.examples:
        snapshot, _ = saturated(example.program(), [rule], {}, compiled=tuple(EQUATIONS.values()))
        for made, own in soundness.pairs(snapshot, smallest_terms(snapshot)):
            if made is not own and _is_compared(own) and _is_compared(made):
                compared += 1
                assert _all(made) == _all(own), f"{made}\nis not\n{own}"
    assert compared >= len(rule.clauses) / 2


def _names() -> dict[str, Any]:
    return {name: value for name, value in vars(equations).items() if name.isupper() and isinstance(value, str)}


def test_every_step_has_a_record_and_every_record_a_step() -> None:
    assert {*_EXPAND} - {"compute"} == {*equations.OF_MOVEMENT}
    assert {*_names().values()} == {*EQUATIONS, equations.ADJOINT}
    assert equations.ADJOINT in RULES


def test_other_elements_are_told_apart() -> None:
    a, b = (build("access-tensor", Tensor(name, Dims((2, 2)), "float32")) for name in "ab")
    pair = build("access-product", split_at(a, 1), split_at(b, 1), 0)
    other = build("access-product", split_at(b, 1), split_at(a, 1), 0)
    assert _all(build("compute", "dot-product", pair)) != _all(build("compute", "dot-product", other))


def test_programs_say_by_which_equations_they_changed() -> None:
    """Each record is one by which some program changes."""
    programs = [low_rank_update(), linear_attention(), low_rank_constants(), two_matrices()]
    for form in (*FOUND, side_by_side, steps_of_a_sequence):
        b = Builder(form.__name__)
        programs.append(b.finish(form(b)).seeded_constants(0))
    found = [one for program in programs for one in cheapest_algebra(program, PRICES).candidates]
    named = {name for one in found for name in one.equations}
    assert all(one.equations for one in found)
    assert named == {*EQUATIONS, equations.ADJOINT}


def side_by_side(b: Builder) -> Term:
    x = b.input("x", (1, 64))
    return build("construct-tuple", *(b.relu(b.matmul(x, b.constant(f"w{n}", (64, 64)))) for n in range(3)))


def steps_of_a_sequence(b: Builder) -> Term:
    x, w = b.input("x", (64, 8, 64)), b.constant("w", (64, 64))
    steps = (b.reshape(slice_axis(x, 1, t, t + 1), (64, 64)) for t in range(8))
    return build("construct-tuple", *(b.relu(b.matmul(step, w)) for step in steps))


def test_the_document_has_all_equations() -> None:
    rows = [f"| `{r.name}` | {summary(r)} | {r.equation} |" for r in sorted(EQUATIONS.values(), key=lambda r: r.name)]
    text = (Path(__file__).parents[2] / "docs" / "algebra.md").read_text(encoding="utf-8")
    _, table = text.split("| name | clauses | equation |\n|---|---|---|\n")
    assert table.partition("\n\n")[0].splitlines() == rows


def _matrix(operand: Operand) -> Any:
    return evaluate([operand.term], {})[0]


@pytest.mark.parametrize("n", range(1, 7))
def test_matrices_of_relations_pad_and_dilate(n: int) -> None:
    """Their products are what `depth-is-split` says: weights with zeros around them, and between them."""
    for rows, factor, shift in product(range(1, 4), range(1, 4), range(3)):
        if shift + factor * (rows - 1) < n:
            wanted = np.zeros((rows, n))
            wanted[np.arange(rows), factor * np.arange(rows) + shift] = 1
            of_row = Relation(Index(n), None, 1, shift)
            assert np.array_equal(_matrix(Relation(Index(n), Index(rows), factor, shift).operand("float32")), wanted)
            assert np.array_equal(_matrix(of_row.operand("float32")), wanted[0])


@pytest.mark.parametrize("sizes", list(product(range(1, 4), repeat=2)))
def test_windows_of_windows_are_the_windows_of_row_operators_compose(sizes: tuple[int, int]) -> None:
    """Element (p, n, k) of windows of windows is element (p, m) of larger ones, where (k, n, m) of the matrix is 1."""
    for stride, apart, outer_stride, outer_apart in product(range(1, 4), repeat=4):
        k, n, p = Index(sizes[0]), Index(sizes[1]), Index(3)
        middle = Index(outer_stride * 2 + outer_apart * (n.size - 1) + 1)
        source = Index(stride * (middle.size - 1) + apart * (k.size - 1) + 1)
        first = Affine(source, ((middle, stride), (k, apart)), 0, (0, source.size))
        second = Affine(middle, ((p, outer_stride), (n, outer_apart)), 0, (0, middle.size))
        found = composed(first, second, {p}, "float32")
        assert found is not None
        row, ones = found
        ((_, per_p), (_, per_m)) = row.terms
        matrix = _matrix(ones)
        for i, j, at in product(range(k.size), range(n.size), range(p.size)):
            (m,) = np.flatnonzero(matrix[i, j])
            assert matrix[i, j, m] == 1
            assert per_p * at + per_m * m == stride * (outer_stride * at + outer_apart * j) + apart * i
