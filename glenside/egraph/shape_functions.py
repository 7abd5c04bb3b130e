"""Functions on shapes that egglog's vectors lack, computed on demand and memoized.

egglog has no fold, zip, take or insert over `Vec`. Each function here is a table `NAME`, filled for exactly the
arguments in a relation `want-NAME`. The tables are keyed by shapes, of which even a large e-graph has few. Step
relations store the shorter vector as a column: a look-up by a computed key would be a cross product.

A function that is a map over a vector is expanded in the rule instead (`written_out`), unless its value is a key of a
look-up: that saves the table, and the passes over all rules until the table is filled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from glenside.egraph.sexpr import Sexpr, read_all, write
from glenside.egraph.tables import RESULTS

_SHORT = 8  # vectors up to this length take one step: each step is a pass over all rules

_PREFIX_FOLD = """
(relation {name}-step ({sorts} Ints))
(rule ((want-{name} {vars}) (> (vec-length v) {short}) (= rest (vec-pop v)))
      (({name}-step {vars} rest) (want-{name} {shorter})) :ruleset shapes)
(rule (({name}-step {vars} rest) (= part ({name} {shorter})) (= i (- (vec-length v) 1)))
      ((set ({name} {vars}) {combine})) :ruleset shapes)
"""


def _prefix_fold(name: str, result: str, extra: str, empty: str, combine: str) -> tuple[str, str, str, str]:
    """Returns a fold over the prefixes of the last argument `v`; `extra`: Ints arguments before it, `i`: last index."""
    names = extra.split()
    sorts, arguments, shorter = "Ints " * len(names) + "Ints", " ".join([*names, "v"]), " ".join([*names, "rest"])
    rules = _PREFIX_FOLD.format(name=name, sorts=sorts, vars=arguments, shorter=shorter, short=_SHORT, combine=combine)
    for length in range(_SHORT + 1):
        parts = [empty, *(combine.replace("part", f"part{i}").replace(" i)", f" {i})") for i in range(length))]
        steps = " ".join(f"(let part{i} {part})" for i, part in enumerate(parts))
        rules += (
            f"(rule ((want-{name} {arguments}) (= {length} (vec-length v)))"
            f" ({steps} (set ({name} {arguments}) part{length})) :ruleset shapes)\n"
        )
    return name, sorts, result, rules


def _short(name: str, values: Iterable[str]) -> str:
    """Returns the rules that compute (v 0), (v 1), .. = `values` in one step."""
    return "".join(
        f"(rule ((want-{name} v {n}) (>= (vec-length v) {n})) ((set ({name} v {n}) {value})) :ruleset shapes)\n"
        for n, value in enumerate(values)
    )


_TAKE = f"""
(relation take-step (Ints i64 Ints))
(rule ((want-take v n) (> n {_SHORT}) (= n (vec-length v))) ((set (take v n) v)) :ruleset shapes)
(rule ((want-take v n) (> n {_SHORT}) (< n (vec-length v)) (= rest (vec-pop v)))
      ((take-step v n rest) (want-take rest n)) :ruleset shapes)
(rule ((take-step v n rest) (= w (take rest n))) ((set (take v n) w)) :ruleset shapes)
"""
_FIRST_SIZES = [" ".join(f"(vec-get v {i})" for i in range(n)) for n in range(1, _SHORT + 1)]
_TAKE += _short("take", ["(vec-empty)", *(f"(vec-of {sizes})" for sizes in _FIRST_SIZES)])

_DROP = f"""
(relation drop-step (Ints i64 Ints i64))
(rule ((want-drop v n) (> n {_SHORT}) (= rest (vec-remove v 0)) (= m (- n 1)))
      ((drop-step v n rest m) (want-drop rest m)) :ruleset shapes)
(rule ((drop-step v n rest m) (= w (drop rest m))) ((set (drop v n) w)) :ruleset shapes)
"""
_DROP += _short("drop", ["(vec-remove " * n + "v" + " 0)" * n for n in range(_SHORT + 1)])

_SHIFT = """
(relation shift-step (Ints i64 Ints))
(rule ((want-shift v n) (= 0 (vec-length v))) ((set (shift v n) v)) :ruleset shapes)
(rule ((want-shift v n) (> (vec-length v) 0) (= rest (vec-pop v)))
      ((shift-step v n rest) (want-shift rest n)) :ruleset shapes)
(rule ((shift-step v n rest) (= w (shift rest n)))
      ((set (shift v n) (vec-push w (+ n (vec-get v (- (vec-length v) 1)))))) :ruleset shapes)
"""

_INSERT = """
(relation insert-step (Ints i64 i64 Ints))
(rule ((want-insert v n i) (= i (vec-length v))) ((set (insert v n i) (vec-push v n))) :ruleset shapes)
(rule ((want-insert v n i) (< i (vec-length v)) (= rest (vec-pop v)))
      ((insert-step v n i rest) (want-insert rest n i)) :ruleset shapes)
(rule ((insert-step v n i rest) (= w (insert rest n i)))
      ((set (insert v n i) (vec-push w (vec-get v (- (vec-length v) 1))))) :ruleset shapes)
"""

_GCD = """
(relation gcd-step (i64 i64 i64))
(rule ((want-gcd a 0)) ((set (gcd a 0) a)) :ruleset shapes)
(rule ((want-gcd a b) (> b 0) (= rest (% a b))) ((gcd-step a b rest) (want-gcd b rest)) :ruleset shapes)
(rule ((gcd-step a b rest) (= g (gcd b rest))) ((set (gcd a b) g)) :ruleset shapes)
"""

SHAPE_FUNCTIONS = {
    name: f"(function {name} ({sorts}) {result} :no-merge)\n(relation want-{name} ({sorts}))\n{rules}"
    for name, sorts, result, rules in (
        ("take", "Ints i64", "Ints", _TAKE),  # the first n sizes
        ("drop", "Ints i64", "Ints", _DROP),  # all but the first n sizes
        ("shift", "Ints i64", "Ints", _SHIFT),  # n added to each (axis numbers)
        ("insert", "Ints i64 i64", "Ints", _INSERT),  # n put before position i
        ("gcd", "i64 i64", "i64", _GCD),
        _prefix_fold("prefixes", "Ints", "", "(vec-of 1)", "(vec-push part (* (vec-get part i) (vec-get v i)))"),
        # prefixes: the products of the first 0, 1, 2 .. sizes
        _prefix_fold("product", "i64", "", "1", "(* part (vec-get v i))"),
        _prefix_fold("highest", "i64", "", "-1", "(max part (vec-get v i))"),
        _prefix_fold("permute", "Ints", "u", "(vec-empty)", "(vec-push part (vec-get u (vec-get v i)))"),  # u[v[i]]
        _prefix_fold(
            "windows",  # (v - k) / t + 1 along each axis; k and t may be longer than v's prefixes
            "Ints",
            "k t",
            "(vec-empty)",
            "(vec-push part (+ 1 (/ (- (vec-get v i) (vec-get k i)) (vec-get t i))))",
        ),
    )
}
"""name -> the commands that declare its table."""


INTS_MAP = "(sort IntsMap (UnstableFn (i64) i64))"
"""The sort of functions that are mapped over a vector of sizes."""
_FIRST = '(unstable-vec-map (unstable-fn "vec-get" {v}) (vec-range {n}))'
_SHIFTED = '(unstable-vec-map (unstable-fn "+" {n}) '
_REST = f'(unstable-vec-map (unstable-fn "vec-get" {{v}}) {_SHIFTED}(vec-range (- (vec-length {{v}}) {{n}}))))'
_WITHIN = "(<= 0 {n}) (<= {n} (vec-length {v}))"  # a map skips indices out of range
_EVERY = "(= (vec-length {x}) (vec-length {v}))"


class WrittenOut(NamedTuple):
    """A function as a map: `value` and its `guard` are egglog texts of the arguments; `x` in the guard is the value."""

    arguments: tuple[str, ...]
    value: str
    guard: str = ""


# The tables that can be expanded to maps.
WRITTEN_OUT = {
    "take": WrittenOut(("v", "n"), _FIRST, _WITHIN),
    "drop": WrittenOut(("v", "n"), _REST, _WITHIN),
    "shift": WrittenOut(("v", "n"), f"{_SHIFTED}{{v}})"),
    "insert": WrittenOut(("v", "size", "n"), f"(vec-append {_FIRST} (vec-of {{size}}) {_REST})", _WITHIN),
    "permute": WrittenOut(("u", "v"), '(unstable-vec-map (unstable-fn "vec-get" {u}) {v})', _EVERY),
}


# Primitives, which egglog computes without a look-up.
_PRIMITIVES = frozenset("= != < <= > >= + - * / % & | << >> min max not".split())


def written_out(facts: list[Sexpr]) -> list[Sexpr]:
    """Expands calls of `WRITTEN_OUT` functions in facts. A call whose value is the key of a look-up stays."""
    facts = list(map(_call_last, facts))
    able = {i: call for i, fact in enumerate(facts) if (call := shape_call(fact)) and call[0] in WRITTEN_OUT}
    keys = set().union(*(atoms(fact) for i, fact in enumerate(facts) if i not in able and looks_up(fact)))
    while looked_up := [i for i in able if atoms(facts[i][1]) & keys]:
        for i in looked_up:
            keys |= atoms(facts[i])
            del able[i]
    return [part for i, fact in enumerate(facts) for part in (_in_words(fact, able[i]) if i in able else [fact])]


def _in_words(fact: Sexpr, call: list[Sexpr]) -> list[Sexpr]:
    form, found = WRITTEN_OUT[str(call[0])], fact[1]
    given = dict(zip(form.arguments, map(write, call[1:]), strict=True))
    return [["=", found, *read_all(form.value.format(**given))], *read_all(form.guard.format(x=write(found), **given))]


def _call_last(fact: Sexpr) -> Sexpr:
    """Rewrites `(= (NAME ..) x)` to `(= x (NAME ..))`, for a shape function or a table."""
    turned = [fact[0], *fact[:0:-1]] if isinstance(fact, list) and fact else fact
    return turned if shape_call(turned) and not shape_call(fact) else fact


def looks_up(fact: Sexpr) -> bool:
    """True if any part of the fact is a row of a table, a relation or an e-node."""
    if not isinstance(fact, list) or not fact:
        return False
    head = str(fact[0])
    return not (head in _PRIMITIVES or head.startswith("vec-")) or any(map(looks_up, fact[1:]))


def atoms(fact: Sexpr) -> set[str]:
    """Returns the atoms of an expression: variables, numbers and texts."""
    return set().union(*map(atoms, fact[1:])) if isinstance(fact, list) else {fact}


def demands(facts: list[Sexpr]) -> list[tuple[list[Sexpr], Sexpr]]:
    """Returns for each fact such as `(= x (take v n))`, in order: the facts before it, and the demand they imply."""
    found: list[tuple[list[Sexpr], Sexpr]] = []
    for index, fact in enumerate(facts):
        call = shape_call(fact)
        if call is not None:
            name = str(call[0])
            want: Sexpr = [f"want-{RESULTS[name].name if name in RESULTS else name}", *call[1:]]
            if all(want != known for _, known in found):  # one demand for all results of a table
                found.append((facts[:index], want))
    return found


def shape_call(fact: Sexpr) -> list[Sexpr] | None:
    """The call in a fact `(= x (NAME ..))` of a shape function or a table, or None."""
    match fact:
        case ["=", _, [str(name), *_] as call] if name in SHAPE_FUNCTIONS or name in RESULTS:
            return call
    return None
