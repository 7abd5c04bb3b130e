"""Patterns as Python values: variables, calls and facts, from which rules are built.

A pattern represents a value of an e-graph: an access pattern (an e-class), a vector of sizes, a number or a text.
Operator records and the declarations of `glenside.egraph.schema` are called with patterns; arithmetic and comparisons
are Python's, and vectors have the methods of `glenside.ir.types.Dims`. Arity, sorts and keywords are checked when a
call is built, so that a mistake in a rule is reported at its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from glenside.egraph.sexpr import row_said
from glenside.egraph.sorts import ACCESS, INT, INTS, TEXT, Column, PatternError, Sort, columns, columns_of
from glenside.ir.names import suggestion
from glenside.ir.operator import Operator


@dataclass(frozen=True, eq=False)
class Signature:
    """A callable of patterns: a name and typed columns.

    `looks_up`: True if it has rows, so that a fact of it binds the variables among its arguments.
    `declaration`: the egglog commands that declare it.
    """

    name: str
    columns: tuple[Column, ...]
    looks_up: bool = True
    declaration: str = ""

    def arguments(self, positional: Sequence[Any], named: dict[str, Any]) -> tuple[Pattern, ...]:
        """Returns one pattern for each column. Raises PatternError."""
        known = [c.name for c in self.columns]
        values = dict(zip(known, positional, strict=False))
        for name, value in named.items():
            if (column := name.replace("_", "-")) in values or column not in known:
                why = f"{column} twice" if column in values else f"no column {column}{suggestion(column, known)}"
                raise PatternError(f"{self} has {why}")
            values[column] = value
        if len(values) != len(self.columns) or len(positional) > len(self.columns):
            raise PatternError(f"{self} takes {len(self.columns)} arguments, got {len(positional) + len(named)}")
        return tuple(_lifted(values[c.name], c, self) for c in self.columns)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(c.name for c in self.columns)})"


@dataclass(frozen=True, eq=False)
class Function(Signature):
    """A function, an operator or a primitive: a call of it is a pattern."""

    result: Sort = INT

    def __call__(self, *positional: Any, **named: Any) -> Call:
        return Call(self, self.arguments(positional, named), self.result)


@dataclass(frozen=True, eq=False)
class Relation(Signature):
    """A relation, or a comparison: a call of it is a fact."""

    def __call__(self, *positional: Any, **named: Any) -> Fact:
        return Fact(self, self.arguments(positional, named))


def _arithmetic(operation: str) -> tuple[Callable[[Pattern, Any], Pattern], Callable[[Pattern, Any], Pattern]]:
    """Returns the methods for `pattern OPERATION other` and `other OPERATION pattern`."""

    def of_left(self: Pattern, other: Any) -> Pattern:
        return self.combine(operation, self, other)

    def of_right(self: Pattern, other: Any) -> Pattern:
        return self.combine(operation, other, self)

    return of_left, of_right


def _comparison(name: str) -> Callable[[Pattern, Any], Fact]:
    return lambda self, other: _COMPARISONS[name](self, other)


class Pattern:
    """A value in a rule. Comparisons such as `==` return facts, so a pattern has no truth value.

    Numbers have Python's arithmetic; division is that of sizes, which are >= 0. Vectors have the methods of `Dims`.
    """

    __slots__ = ("sort",)
    sort: Sort | None
    __iter__: ClassVar[None] = None
    __hash__ = object.__hash__

    def expect(self, sort: Sort, where: str, of: object) -> None:
        """Raises PatternError if the pattern has another sort; a variable without a sort gets this one."""
        if self.sort is not sort:
            raise PatternError(f"{where} {of} takes {sort.words}, and {self} is {(self.sort or ACCESS).words}")

    def egglog(self) -> str:
        """Returns the expression in egglog syntax; `$name` is a parameter of the target."""
        raise NotImplementedError

    def __applied__(self, operator: Operator, arguments: Sequence[Any]) -> Pattern:
        """Returns the call of an operator record, with one argument for each column of its e-node."""
        return of_operator(operator)(*arguments)

    def __bool__(self) -> bool:
        raise PatternError(f"{self} has no truth value: conditions of a rule are facts among its guards")

    def __repr__(self) -> str:
        return str(self)

    # Facts
    def __eq__(self, other: object) -> Fact:  # type: ignore[override]
        return _compared("=", self, other)

    def __ne__(self, other: object) -> Fact:  # type: ignore[override]
        return _compared("!=", self, other)

    __lt__, __le__ = _comparison("<"), _comparison("<=")
    __gt__, __ge__ = _comparison(">"), _comparison(">=")

    # Numbers
    def combine(self, operation: str, a: Any, b: Any) -> Pattern:
        """Returns egglog's `operation` of two numbers; `glenside.ir.types` has those without a Python operator."""
        return ARITHMETIC[operation](a, b)

    __add__, __radd__ = _arithmetic("+")
    __sub__, __rsub__ = _arithmetic("-")
    __mul__, __rmul__ = _arithmetic("*")
    __floordiv__, __rfloordiv__ = _arithmetic("/")
    __mod__, __rmod__ = _arithmetic("%")
    __and__, __rand__ = _arithmetic("&")
    __or__, __ror__ = _arithmetic("|")
    __lshift__, __rlshift__ = _arithmetic("<<")

    # Vectors
    def apply(self, function: str, *arguments: Any) -> Pattern:
        """Returns the call of a vector function by its egglog name."""
        return VECTORS[function](*arguments) if function in VECTORS else _variadic(function, INTS, arguments)

    def __getitem__(self, axis: Any) -> Pattern:
        return self.apply("vec-get", self, axis)

    @property
    def length(self) -> Pattern:
        return self.apply("vec-length", self)

    def take(self, n: Any) -> Pattern:
        """The first n sizes."""
        return self.apply("take", self, n)

    def drop(self, n: Any) -> Pattern:
        """All but the first n sizes."""
        return self.apply("drop", self, n)

    def set(self, axis: Any, size: Any) -> Pattern:
        return self.apply("vec-set", self, axis, size)

    def insert(self, axis: Any, size: Any) -> Pattern:
        """`size` put before position `axis`."""
        return self.apply("insert", self, size, axis)

    def remove(self, axis: Any) -> Pattern:
        return self.apply("vec-remove", self, axis)

    def push(self, size: Any) -> Pattern:
        """The vector with `size` appended."""
        return self.apply("vec-push", self, size)

    def pop(self) -> Pattern:
        """All but the last size."""
        return self.apply("vec-pop", self)

    def append(self, *others: Any) -> Pattern:
        return self.apply("vec-append", self, *others)

    def permute(self, order: Any) -> Pattern:
        """self[order[0]], self[order[1]] and so on."""
        return self.apply("permute", self, order)

    def shift(self, n: Any) -> Pattern:
        """The vector with n added to each size."""
        return self.apply("shift", self, n)

    def windows(self, window: Any, strides: Any) -> Pattern:
        return self.apply("windows", window, strides, self)

    def product(self) -> Pattern:
        return self.apply("product", self)

    def prefixes(self) -> Pattern:
        """The products of the first 0, 1, 2 .. sizes."""
        return self.apply("prefixes", self)

    def highest(self) -> Pattern:
        return self.apply("highest", self)


class Variable(Pattern):
    """A named value that the facts of a rule bind; its first use determines its sort."""

    __slots__ = ("name",)

    def __init__(self, name: str, sort: Sort | None = None) -> None:
        self.name, self.sort = name.replace("_", "-"), sort

    def expect(self, sort: Sort, where: str, of: object) -> None:
        if self.sort is None:
            self.sort = sort
        elif self.sort is not sort:
            raise PatternError(
                f"{where} {of} takes {sort.words}, and the variable {self.name} is {self.sort.words} elsewhere"
            )

    def egglog(self) -> str:
        return f"?{self.name}"  # a variable must not have the name of a function

    def __str__(self) -> str:
        return self.name


class Literal(Pattern):
    """A number or a text."""

    __slots__ = ("value",)

    def __init__(self, value: int | str) -> None:
        self.value, self.sort = value, INT if isinstance(value, int) else TEXT

    def egglog(self) -> str:
        return str(self.value) if isinstance(self.value, int) else f'"{self.value}"'

    def __str__(self) -> str:
        return str(self.value)


class Named(Pattern):
    """`$name`: a parameter of the target, or a node of an example's program."""

    __slots__ = ("name",)

    def __init__(self, name: str, sort: Sort) -> None:
        self.name, self.sort = name, sort

    def egglog(self) -> str:
        return f"${self.name}"

    def __str__(self) -> str:
        return self.name.replace("_", "-")


class Written(Pattern):
    """A value given as egglog text."""

    __slots__ = ("text",)

    def __init__(self, text: str, sort: Sort | None) -> None:
        self.text, self.sort = text, sort

    def egglog(self) -> str:
        return self.text

    __str__ = egglog


class Call(Pattern):
    """A call of a function, an operator or a primitive."""

    __slots__ = ("arguments", "head")

    def __init__(self, head: Signature, arguments: tuple[Pattern, ...], sort: Sort) -> None:
        self.head, self.arguments, self.sort = head, arguments, sort

    def egglog(self) -> str:
        return _list(self.head.name, self.arguments)

    def __str__(self) -> str:
        return call_words(self.head.name, self.arguments)


class Fact:
    """A row of a relation, or a comparison: a condition of a rule. A row can also be an action."""

    __slots__ = ("arguments", "head")

    def __init__(self, head: Signature, arguments: tuple[Pattern, ...]) -> None:
        self.head, self.arguments = head, arguments

    def egglog(self) -> str:
        """Returns the fact in egglog syntax."""
        return _list(self.head.name, self.arguments)

    def said(self) -> str:
        """Returns the action that adds the row."""
        return row_said(self.egglog())

    def __bool__(self) -> bool:
        raise PatternError(f"{self} has no truth value: conditions of a rule are facts among its guards")

    def __str__(self) -> str:
        return call_words(self.head.name, self.arguments)

    __repr__ = __str__


_COMPARED = {"=", "!=", "<", "<=", ">", ">="}
_INFIX = {"+", "-", "*", "/", "%", "&", "|", "<<", *_COMPARED}
_WORDS = {"vec-get": "{}[{}]", "vec-length": "|{}|", "compute": "{}({})"}


def call_words(head: str, arguments: Sequence[Any]) -> str:
    """Returns a call as text for people: infix if usual, operators by their short names."""
    words = list(map(str, arguments))  # once each: calls nest deeply
    infix = [isinstance(a, Call) and a.head.name in _INFIX for a in arguments]
    parts = [f"({word})" if grouped else word for word, grouped in zip(words, infix, strict=True)]
    if head in _INFIX:
        return f" {head} ".join(words if head in _COMPARED else parts)
    if head in _WORDS:
        return _WORDS[head].format(*words)
    if head == "vec-of":
        return f"({' '.join(parts)})"
    if head == "vec-append":
        return " ++ ".join(words)
    return f"{head.removeprefix('access-').removeprefix('vec-')}({', '.join(words)})"


def _list(head: str, arguments: Sequence[Pattern]) -> str:
    if head == "vec-of" and not arguments:
        return "(vec-empty)"
    return f"({' '.join([head, *(a.egglog() for a in arguments)])})"


def _lifted(value: Any, column: Column, of: Signature) -> Pattern:
    """Returns an argument as a pattern of the column's sort. Raises PatternError."""
    if isinstance(value, Pattern):
        value.expect(column.sort, f"{column.name} of", of)
        return value
    if isinstance(value, str) and column.sort is TEXT:
        column.check(value, of.name)
        return Literal(value)
    if isinstance(value, int) and not isinstance(value, bool) and column.sort is INT:
        return Literal(value)
    if isinstance(value, tuple | list) and column.sort is INTS:
        return vec(*value)
    raise PatternError(f"{column.name} of {of} takes {column.sort.words}, got {value!r}")


def _primitive(name: str, result: Sort, **sorts: Sort) -> Function:
    return Function(name, columns(**sorts), False, "", result)


ARITHMETIC = {name: _primitive(name, INT, a=INT, b=INT) for name in "+ - * / % & | << min max".split()}
_COMPARISONS = {name: Relation(name, columns(a=INT, b=INT), False) for name in "< <= > >=".split()}
_EQUALITIES = {(name, sort): Relation(name, columns(a=sort, b=sort), False) for name in ("=", "!=") for sort in Sort}
VECTORS = {
    f.name: f
    for f in (
        _primitive("vec-get", INT, d=INTS, axis=INT),
        _primitive("vec-length", INT, d=INTS),
        _primitive("vec-set", INTS, d=INTS, axis=INT, size=INT),
        _primitive("vec-remove", INTS, d=INTS, axis=INT),
        _primitive("vec-push", INTS, d=INTS, size=INT),
        _primitive("vec-pop", INTS, d=INTS),
        _primitive("vec-range", INTS, n=INT),
        _primitive("take", INTS, d=INTS, n=INT),
        _primitive("drop", INTS, d=INTS, n=INT),
        _primitive("insert", INTS, d=INTS, size=INT, axis=INT),
        _primitive("permute", INTS, d=INTS, order=INTS),
        _primitive("shift", INTS, d=INTS, n=INT),
        _primitive("windows", INTS, window=INTS, strides=INTS, d=INTS),
        _primitive("product", INT, d=INTS),
        _primitive("prefixes", INTS, d=INTS),
        _primitive("highest", INT, d=INTS),
        _primitive("gcd", INT, a=INT, b=INT),
    )
}


def _compared(name: str, a: Pattern, b: object) -> Fact:
    sort = a.sort or (b.sort if isinstance(b, Pattern) else INT if isinstance(b, int) else TEXT)
    if sort is None and isinstance(b, Pattern):  # two variables without a sort: their clause compares the sorts
        return Fact(_EQUALITIES[name, ACCESS], (a, b))
    return _EQUALITIES[name, sort or ACCESS](a, b)


def _variadic(name: str, sort: Sort, values: Sequence[Any]) -> Pattern:
    head = Function(name, tuple(Column(str(i), sort) for i in range(len(values))), False, "", INTS)
    return head(*values)


def vec(*sizes: Any) -> Pattern:
    """Returns the pattern of a vector of sizes."""
    return _variadic("vec-of", INT, sizes)


vec_range = VECTORS["vec-range"]
"""0, 1, .. n - 1."""
gcd = VECTORS["gcd"]
"""The greatest common divisor."""


def variables(names: str) -> Iterator[Variable]:
    """Returns variables with these names, for parts that several rules share."""
    return map(Variable, names.split())


@cache
def of_operator(operator: Operator) -> Function:
    """Returns the operator as a function of patterns: one argument for each column of its e-nodes."""
    columns = tuple(column for field in operator.fields for column in columns_of(field))
    return Function(operator.name, columns, True, "", ACCESS)


def sort_names(operator: Operator) -> tuple[str, ...]:
    """Returns egglog's names of the sorts of an operator's columns."""
    return tuple(column.sort.value for column in of_operator(operator).columns)
