"""The prover's meanings of operators against `evaluate`, on the examples of all operators and on random sizes."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from glenside.egraph.sorts import columns_of
from glenside.ir.operator import COMPUTES, OPERATORS, Example, Kind
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.ir.text import parse
from glenside.proofs.access_patterns import Access, Case, Choices, Impossible, access_type
from glenside.proofs.assumptions import Effort
from glenside.proofs.compute_meanings import keeps_zero
from glenside.proofs.elements import Apply, Element, Factor, Read, Reduction, of_factor
from glenside.proofs.operator_meanings import MEANINGS
from glenside.proofs.symbolic_integers import Integer, Lookup, integer, integers
from glenside.semantics.interpreter import evaluate

assert PRIMITIVES
_REDUCED = {"reduce-max": np.max, "reduce-min": np.min, "reduce-prod": np.prod, "reduce-mean": np.mean}
_REDUCED |= {"argmax": np.argmax, "argmin": np.argmin, "product": np.prod}


def _programs() -> list[Any]:
    records = [*OPERATORS.values(), *COMPUTES.values()]
    known = [r for r in records if (r.name in MEANINGS and r.name != "access-gather") or r.name in COMPUTES]
    return [pytest.param(e, id=f"{r.name}-{k}") for r in known for k, e in enumerate(r.examples)]


def _meaning(term: Term, case: Case) -> Access:
    """Returns the symbolic access pattern of a program of concrete sizes."""
    if term.operator.name == "access-tensor":
        tensor = term.attributes[0]
        dims = integers(tensor.dims)  # type: ignore[union-attr]
        return Access(access_type(dims, 0, tensor.dtype), lambda i: of_factor(Read(tensor.name, i)))  # type: ignore[union-attr]
    values: list[Any] = []
    for field, argument in zip(term.operator.fields, term.arguments(), strict=True):
        if field.kind is Kind.TERM:
            values.append(None)
        elif len(columns_of(field)) > 1:
            values += [tuple(part) for part in argument]
        else:
            values.append(tuple(argument) if isinstance(argument, tuple) else argument)
    children = iter(term.children)
    return MEANINGS[term.operator.name](case, *(_meaning(next(children), case) if v is None else v for v in values))


def _number(value: Integer, bound: dict[str, int]) -> int:
    return value.value(bound)


def _value(element: Element, arrays: dict[str, Any], bound: dict[str, int]) -> Any:
    total: Any = 0
    for s in element.summands:
        sizes = [_number(n, bound) for _, n in s.ranges]
        for places in product(*map(range, sizes)):
            inner = {**bound, **{str(v): k for (v, _), k in zip(s.ranges, places, strict=True)}}
            if all(c.holds(inner) for c in s.guards):
                term: Any = Fraction(s.coefficient)
                for factor in s.factors:
                    term = float(term) * _factor(factor, arrays, inner)
                total = total + float(term)
    return total


def _factor(factor: Factor, arrays: dict[str, Any], bound: dict[str, int]) -> Any:
    if isinstance(factor, Read):
        if factor.tensor.startswith("lowest"):
            return -np.inf
        if factor.tensor.startswith("matrix"):
            words = factor.tensor.split()[1:]
            row, column = (_number(i, bound) for i in factor.index)
            return float(Fraction(words[row * arrays["columns"] + column]))
        return float(arrays[factor.tensor][tuple(_number(i, bound) for i in factor.index)])
    if isinstance(factor, Apply):
        values = [_value(a, arrays, bound) for a in factor.arguments]
        if factor.function.startswith("cast"):
            return values[0]
        if factor.function == "reciprocal":
            return np.float64(1) / np.float64(values[0])
        dtype = "bool" if "logical" in factor.function else "int32" if "bitwise" in factor.function else "float32"
        text = f"(compute {factor.function} (access-tensor v))"
        return float(
            _evaluated(
                parse(text, shapes={"v": (len(values),) if len(values) > 1 else ()}, dtypes={"v": dtype}),
                v=np.array(values),
            )
        )
    assert isinstance(factor, Reduction)
    sizes = [_number(n, bound) for _, n in factor.ranges]
    places = list(product(*map(range, sizes)))
    names = [str(v) for v, _ in factor.ranges]
    values = [_value(factor.body, arrays, {**bound, **dict(zip(names, p, strict=True))}) for p in places]
    if factor.function in _REDUCED:
        return float(_REDUCED[factor.function](values))
    text = f"(compute {factor.function} (access-tensor v))"
    whole = _evaluated(parse(text, shapes={"v": tuple(sizes)}), v=np.array(values).reshape(sizes))
    return float(whole[tuple(_number(i, bound) for i in factor.index)])


def _evaluated(program: Program, **arrays: Any) -> Any:
    return evaluate(
        [program.term],
        {k: a.reshape(program.tensors[k].dims).astype(program.tensors[k].dtype) for k, a in arrays.items()},
    )[0]


def _agree(program: Program, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = {n: rng.integers(-3, 4, tuple(t.dims)).astype(t.dtype) for n, t in program.tensors.items()}
    wanted = np.asarray(evaluate([program.term], arrays)[0]).astype(np.float64)
    choices, found = Choices(), None
    more = True
    while more and found is None:  # of the cases of a meaning, that of these sizes
        try:
            found = _meaning(program.term, Case(choices, Effort(60), "float32", 3))
        except Impossible:
            more = choices.advance()
    assert found is not None
    assert tuple(n.constant for n in found.dims) == wanted.shape
    assert (found.split, found.dtype) == (program.term.type.split, program.term.type.dtype)  # type: ignore[union-attr]
    known: dict[str, Any] = {**arrays, "columns": program.term.children[0].type.dims[1] if program.term.children else 0}  # type: ignore[union-attr]
    for index in product(*map(range, wanted.shape)):
        with np.errstate(all="ignore"):
            value = _value(found.at(integers(index)), known, {})
        assert np.isclose(value, wanted[index], rtol=1e-4, atol=1e-4, equal_nan=True) or wanted[index] == value, index


@pytest.mark.parametrize("example", _programs())
@pytest.mark.parametrize("seed", range(2))
def test_meanings_are_those_of_evaluate(example: Example, seed: int) -> None:
    program = example.program(seed)
    if any(t.dtype != "float32" for t in program.tensors.values()):
        pytest.skip("numbers of another dtype")
    _agree(program, seed)


_SIZED = {
    "access-slice": ("(access-slice (access (access-tensor x) 1) 1 {lo} {hi})", 2),
    "access-concatenate": ("(access-concatenate (access (access-tensor x) 1) (access (access-tensor x) 1) 0)", 2),
    "access-pad": ("(access-pad (access (access-tensor x) 1) zero-padding 1 {lo} {hi})", 2),
    "access-dilate": ("(access-dilate (access (access-tensor x) 1) 0 {hi})", 2),
    "access-flip": ("(access-flip (access (access-tensor x) 1) 1)", 2),
    "access-product": ("(access-cartesian-product (access (access-tensor x) 1) (access (access-tensor x) 1))", 2),
    "dot-product": (
        "(compute dot-product (access-cartesian-product (access (access-tensor x) 1) (access (access-tensor x) 1)))",
        2,
    ),
    "reduce-sum": ("(compute reduce-sum (access (access-tensor x) 1))", 3),
    "reduce-prod": ("(compute reduce-prod (access (access-tensor x) 1))", 3),
    "access-flatten": ("(access-flatten (access (access-tensor x) 2))", 3),
    "access-windows": ("(access-windows (access (access-tensor x) 1) (shape {lo}) (shape {step}))", 2),
}


@pytest.mark.parametrize("name", _SIZED)
@pytest.mark.parametrize("seed", range(6))
def test_meanings_hold_at_sizes_of_zero_and_one(name: str, seed: int) -> None:
    rng = random.Random(f"{name} {seed}")
    text, rank = _SIZED[name]
    dims = tuple(rng.choice((0, 1, 1, 2, 3)) for _ in range(rank))
    lo, hi = sorted(rng.randint(0, dims[1]) for _ in range(2))
    _agree(parse(text.format(lo=lo, hi=hi, step=rng.randint(1, 2)), shapes={"x": dims}), seed)


@pytest.mark.parametrize("axis", range(3))
def test_the_meaning_of_a_gather(axis: int) -> None:
    text = f"(access-gather (access (access-tensor x) 1) (access-tensor i) {axis})"
    program = parse(text, shapes={"x": (3, 4, 5), "i": (2, 2)}, dtypes={"i": "int64"})
    x, i = np.arange(60.0, dtype=np.float32).reshape(3, 4, 5), np.array([[2, -1], [0, 1]])
    x_leaf, i_leaf = (
        Access(access_type(integers(a.shape), s, d), lambda at, n=n: of_factor(Read(n, at)))  # type: ignore[misc]
        for n, a, s, d in (("x", x, 1, "float32"), ("i", i, 0, "int64"))
    )
    found = MEANINGS["access-gather"](Case(Choices(), Effort(60), "float32", 3), x_leaf, i_leaf, axis)
    wanted = evaluate([program.term], {"x": x, "i": i})[0]
    assert (tuple(n.constant for n in found.dims), found.split) == (wanted.shape, program.term.access.split)
    for at in product(*map(range, wanted.shape)):
        (read,) = found.at(integers(at)).summands[0].factors
        assert isinstance(read, Read)
        places = {
            a: integer(i[tuple(_number(p, {}) for p in a.index[:-1])] % x.shape[axis])
            for p in read.index
            for a in p.atoms
            if isinstance(a, Lookup)
        }
        assert x[tuple(_number(p.substitute(places), {}) for p in read.index)] == wanted[at]


@pytest.mark.parametrize("kind", [c for c in COMPUTES if c not in ("clip", "leaky-relu", "mod", "compare", "argsort")])
def test_what_keeps_zero_does(kind: str) -> None:
    """Of pointwise functions the record says so, of reductions the prover."""
    from glenside.proofs.compute_meanings import _ZERO_TO_ZERO, category_of

    if category_of(kind) == "pointwise":
        program = parse(
            f"(compute {kind} (access-tensor v))", shapes={"v": (1,)}, dtypes={"v": "bool"} if "logical" in kind else {}
        )
        value = evaluate([program.term], {"v": np.zeros(1, program.tensors["v"].dtype)})[0]
        assert bool(value[0] == 0) or not keeps_zero(kind)
    elif kind in _ZERO_TO_ZERO:
        program = parse(f"(compute {kind} (access-tensor v))", shapes={"v": (2, 3)})
        assert evaluate([program.term], {"v": np.zeros((2, 3), np.float32)})[0] == 0
