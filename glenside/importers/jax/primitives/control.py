"""Imports calls, branches and loops: calls are inlined, and loops are unrolled."""

from __future__ import annotations

from glenside.builder.layout import concatenate, element, flip, reshape
from glenside.builder.pointwise import cast, compare, filled, select
from glenside.importers.jax.equation import Equation, Refused, primitive
from glenside.importers.jax.walk import inlined
from glenside.ir.term import Term

_CALLS = (
    "jit pjit closed_call core_call custom_jvp_call custom_vjp_call custom_vjp_call_jaxpr remat2 checkpoint".split()
)


@primitive(*_CALLS)
def call(equation: Equation, *operands: Term) -> list[Term]:
    return inlined(equation.scope, _body(equation), operands)


def _body(equation: Equation) -> object:
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if name in equation.params:
            return equation.params[name]
    raise Refused("has no jaxpr")


@primitive("cond")
def cond(equation: Equation, index: Term, *operands: Term) -> list[Term]:
    """Inlines the branch, if it is known; else computes all branches, and selects."""
    branches, known = equation.params["branches"], equation.known(index)
    if known is not None:
        return inlined(equation.scope, branches[min(max(int(known), 0), len(branches) - 1)], operands)
    found, *others = (inlined(equation.scope, branch, operands) for branch in branches)
    number = cast(index, "int32")
    for place, other in enumerate(others, 1):
        later = compare("ge", number, filled(number, place))
        found = [select(later, b, a) for a, b in zip(found, other, strict=True)]
    return found


@primitive("platform_index")
def platform_index(equation: Equation) -> Term:
    """Returns the place of what is written for CPUs, or for all platforms; the first of both."""
    found = [place for place, own in enumerate(equation.params["platforms"]) if own is None or "cpu" in own]
    if not found:
        raise Refused("has nothing for CPUs")
    return equation.filled((), found[0], equation.dtype)


@primitive("scan")
def scan(equation: Equation, *operands: Term) -> list[Term]:
    """Unrolls a loop over the elements of the first axis."""
    params = equation.params
    consts, carry = params["num_consts"], params["num_carry"]
    fixed, state, along = operands[:consts], list(operands[consts : consts + carry]), operands[consts + carry :]
    made: list[list[Term]] = [[] for _ in equation.results[carry:]]
    steps = range(params["length"])
    for step in reversed(steps) if params["reverse"] else steps:
        found = inlined(equation.scope, params["jaxpr"], [*fixed, *state, *(element(x, 0, step) for x in along)])
        state = found[:carry]
        for parts, part in zip(made, found[carry:], strict=True):
            parts.append(reshape(part, (1, *part.access.dims)))
    results = []
    for parts, (dims, dtype) in zip(made, equation.results[carry:], strict=True):
        whole = concatenate(parts, 0) if parts else equation.filled(dims, 0, dtype)
        results.append(flip(whole, 0) if params["reverse"] and parts else whole)
    return [*state, *results]


@primitive("while")
def while_(equation: Equation, *operands: Term) -> list[Term]:
    """Unrolls a loop whose condition is known at import, such as that of `fori_loop`."""
    params = equation.params
    first, second = params["cond_nconsts"], params["body_nconsts"]
    of_condition, of_body = operands[:first], operands[first : first + second]
    state = list(operands[first + second :])
    while True:
        (condition,) = inlined(equation.scope, params["cond_jaxpr"], [*of_condition, *state])
        known = equation.known(condition)
        if known is None:
            raise Refused("the number of iterations depends on data")
        if not known:
            return state
        state = [_folded(equation, x) for x in inlined(equation.scope, params["body_jaxpr"], [*of_body, *state])]


def _folded(equation: Equation, x: Term) -> Term:
    """Returns a number that is known, such as a counter, as itself."""
    known = equation.known(x) if x.access.rank == 0 else None
    return x if known is None else equation.filled((), known.item(), x.access.dtype)


@primitive("debug_callback", "debug_print")
def nothing(*_: object) -> list[Term]:
    return []


_RANDOM = "random_seed random_bits random_wrap random_unwrap random_fold_in random_split random_gamma threefry2x32"


@primitive(*_RANDOM.split())
def random(*_: object) -> list[Term]:
    raise Refused("draws random numbers, which a program has only as inputs")
