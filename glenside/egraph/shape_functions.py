"""Functions on shapes that egglog's vectors lack: written out where a map does, else computed on demand and remembered.

egglog has a map over `Vec`, but no fold or zip. `WRITTEN_OUT` are calls that rules may make in a fact `(= x (NAME ..))`
and that egglog sees as maps of `vec-get` over the axes that are taken. Each of `SHAPE_FUNCTIONS` is a table `NAME`,
filled for exactly the arguments that stand in a relation `want-NAME`. The tables are keyed by the shapes themselves, of
which even a large e-graph has few. Steps keep the shorter vector as a column: a look-up by a computed key would be a
cross product.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from glenside.egraph.sexpr import Sexpr, read_all, write
from glenside.egraph.tables import RESULTS


@dataclass(frozen=True, slots=True)
class ShapeFunction:
    """`rules` define the table; `arguments` and `result` are egglog sorts."""

    name: str
    arguments: tuple[str, ...]
    result: str
    rules: str

    def declarations(self) -> str:
        sorts = " ".join(self.arguments)
        return (
            f"(function {self.name} ({sorts}) {self.result} :no-merge)\n"
            f"(relation want-{self.name} ({sorts}))\n{self.rules}"
        )


_SHORT = 8  # vectors up to this length are done at once: a step at a time would be a pass of all rules for each step

_PREFIX_FOLD = """
(relation {name}-step ({sorts} Ints))
(rule ((want-{name} {vars}) (> (vec-length v) {short}) (= rest (vec-pop v)))
      (({name}-step {vars} rest) (want-{name} {shorter})) :ruleset shapes)
(rule (({name}-step {vars} rest) (= part ({name} {shorter})) (= i (- (vec-length v) 1)))
      ((set ({name} {vars}) {combine})) :ruleset shapes)
"""


def _prefix_fold(name: str, result: str, extra: str, empty: str, combine: str) -> ShapeFunction:
    """A fold over the prefixes of the last argument `v`; `extra` are Ints arguments before it, `i` the last index."""
    names = extra.split()
    rules = _PREFIX_FOLD.format(
        name=name,
        sorts=" ".join(["Ints"] * (len(names) + 1)),
        vars=" ".join([*names, "v"]),
        shorter=" ".join([*names, "rest"]),
        short=_SHORT,
        combine=combine,
    )
    arguments = " ".join([*names, "v"])
    for length in range(_SHORT + 1):
        steps = [f"(let part0 {empty})"]
        steps += [
            f"(let part{i + 1} {combine.replace('part', f'part{i}').replace(' i)', f' {i})')})" for i in range(length)
        ]
        rules += (
            f"(rule ((want-{name} {arguments}) (= {length} (vec-length v)))"
            f" ({' '.join(steps)} (set ({name} {arguments}) part{length})) :ruleset shapes)\n"
        )
    return ShapeFunction(name, ("Ints",) * (len(names) + 1), result, rules)


_GCD = """
(relation gcd-step (i64 i64 i64))
(rule ((want-gcd a 0)) ((set (gcd a 0) a)) :ruleset shapes)
(rule ((want-gcd a b) (> b 0) (= rest (% a b))) ((gcd-step a b rest) (want-gcd b rest)) :ruleset shapes)
(rule ((gcd-step a b rest) (= g (gcd b rest))) ((set (gcd a b) g)) :ruleset shapes)
"""

SHAPE_FUNCTIONS = {
    f.name: f
    for f in (
        ShapeFunction("gcd", ("i64", "i64"), "i64", _GCD),
        _prefix_fold("prefixes", "Ints", "", "(vec-of 1)", "(vec-push part (* (vec-get part i) (vec-get v i)))"),
        # prefixes: the products of the first 0, 1, 2 .. sizes
        _prefix_fold("product", "i64", "", "1", "(* part (vec-get v i))"),
        _prefix_fold("highest", "i64", "", "-1", "(max part (vec-get v i))"),
        _prefix_fold(
            "windows",  # (v - k) / t + 1 along each axis; k and t may be longer than v's prefixes
            "Ints",
            "k t",
            "(vec-empty)",
            "(vec-push part (+ 1 (/ (- (vec-get v i) (vec-get k i)) (vec-get t i))))",
        ),
    )
}


INTS_MAP = "(sort IntsMap (UnstableFn (i64) i64))"
"""What is mapped over a vector of sizes."""
_FIRST = '(unstable-vec-map (unstable-fn "vec-get" {v}) (vec-range {n}))'
_SHIFTED = '(unstable-vec-map (unstable-fn "+" {n}) '
_REST = f'(unstable-vec-map (unstable-fn "vec-get" {{v}}) {_SHIFTED}(vec-range (- (vec-length {{v}}) {{n}}))))'
_WITHIN = "(<= 0 {n}) (<= {n} (vec-length {v}))"  # a map leaves out what is not there
_ALL = "(= (vec-length {x}) (vec-length {v}))"


@dataclass(frozen=True, slots=True)
class WrittenOut:
    """`value` and the `guard` that it needs are egglog texts of the arguments; `x` in the guard is the value."""

    arguments: tuple[str, ...]
    value: str
    guard: str = ""


WRITTEN_OUT = {
    "take": WrittenOut(("v", "n"), _FIRST, _WITHIN),  # the first n sizes
    "drop": WrittenOut(("v", "n"), _REST, _WITHIN),  # all but the first n sizes
    "shift": WrittenOut(("v", "n"), f"{_SHIFTED}{{v}})"),  # n added to each (axis numbers)
    "insert": WrittenOut(("v", "size", "n"), f"(vec-append {_FIRST} (vec-of {{size}}) {_REST})", _WITHIN),
    # insert: a size put before position n
    "permute": WrittenOut(("u", "v"), '(unstable-vec-map (unstable-fn "vec-get" {u}) {v})', _ALL),  # u[v[i]]
}


def written_out(facts: list[Sexpr]) -> list[Sexpr]:
    """The facts with the calls of `WRITTEN_OUT` in egglog's own words."""
    result: list[Sexpr] = []
    for fact in facts:
        call = _call(fact, WRITTEN_OUT)
        if call is None:
            result.append(fact)
            continue
        form = WRITTEN_OUT[str(call[0])]
        given = dict(zip(form.arguments, map(write, call[1:]), strict=True))
        result.append(["=", fact[1], *read_all(form.value.format(**given))])
        result += read_all(form.guard.format(x=write(fact[1]), **given))
    return result


def _call(fact: Sexpr, *tables: Container[str]) -> list[Sexpr] | None:
    """The call in a fact `(= x (NAME ..))` of a name in these tables, or None."""
    if isinstance(fact, list) and len(fact) == 3 and fact[0] == "=":
        call = fact[2]
        if isinstance(call, list) and call and isinstance(call[0], str) and any(call[0] in t for t in tables):
            return call
    return None


def demands(facts: list[Sexpr]) -> list[tuple[list[Sexpr], Sexpr]]:
    """For each fact `(= x (prefixes v))`, in order: the facts before it, and the want that they justify."""
    found: list[tuple[list[Sexpr], Sexpr]] = []
    for index, fact in enumerate(facts):
        call = _call(fact, SHAPE_FUNCTIONS, RESULTS)
        if call is not None:
            name = str(call[0])
            want: Sexpr = [f"want-{RESULTS[name].name if name in RESULTS else name}", *call[1:]]
            if all(want != known for _, known in found):  # the results of a table are wanted once
                found.append((facts[:index], want))
    return found
