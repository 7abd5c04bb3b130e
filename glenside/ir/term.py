"""Defines terms: typed, immutable, shared. Equal terms are one object, so a term is a DAG and equality is identity.

Nothing here recurses: a term may be a hundred thousand operators deep.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from glenside.ir.errors import TypeMismatch
from glenside.ir.open_integer import as_integer
from glenside.ir.operator import OPERATORS, Field, Kind, Operator
from glenside.ir.types import AccessType, Dims, Tensor, TupleType, Type

if TYPE_CHECKING:
    from glenside.ir.index_map import IndexMap

Attribute = int | str | Dims | Tensor


@dataclass(eq=False, repr=False, slots=True, weakref_slot=True)
class Term:
    """An operator applied to children (terms) and attributes (ints, strings, Dims), with its type."""

    operator: Operator
    attributes: tuple[Attribute, ...]
    children: tuple[Term, ...]
    type: Type

    @property
    def access(self) -> AccessType:
        """The type of a term that is an access pattern. Raises TypeMismatch for a tuple."""
        if isinstance(self.type, TupleType):
            raise TypeMismatch(f"{self.operator.name} is a tuple where an access pattern is required, got {self.type}")
        return self.type

    def arguments(self) -> tuple[Any, ...]:
        """Returns children and attributes in field order, from which the operator builds this term again."""
        return weave(self.operator, self.children, self.attributes)

    @property
    def index_map(self) -> IndexMap | None:
        """The index map of the term; None if elements are computed, or moved to computed indices."""
        if self.operator.index_map is None:
            return None
        return _index_map(self.operator, tuple(c.type for c in self.children), self.attributes)

    def __repr__(self) -> str:
        from glenside.ir.text import print_term

        text = print_term(self)
        return text if len(text) <= 400 else f"{text[:400]} ... : {self.type}"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a term is not pickled; print it and parse it again")


_terms: WeakValueDictionary[tuple[Any, ...], Term] = WeakValueDictionary()
_sharing = Lock()


def make(operator: Operator, arguments: Sequence[Any]) -> Term:
    """Returns the term `operator(*arguments)`: checks it, infers its type and shares equal terms.

    An ACCESS_SHAPE argument is a pair of dims. Raises TypeMismatch.
    """
    return shared(operator, *unweave(operator, arguments))


def shared(operator: Operator, children: tuple[Term, ...], attributes: tuple[Attribute, ...]) -> Term:
    """Returns the shared term of attributes in canonical form. Raises TypeMismatch."""
    key = (operator, attributes, tuple(map(id, children)))
    known = _terms.get(key)
    if known is None:
        operands = tuple([c.type for c in children])
        # Hashing recurses, and tuples may be deeply nested.
        flat = not any(isinstance(type_, TupleType) for type_ in operands)
        type_ = (_known_type_of if flat else _type_of)(operator, attributes, operands)
        made = Term(operator, attributes, children, type_)
        with _sharing:  # another thread may have made it
            known = _terms.setdefault(key, made)
    return known


def _type_of(operator: Operator, attributes: tuple[Attribute, ...], operands: tuple[Type, ...]) -> Type:
    """Returns the result type of an operator for operands of these types. Raises TypeMismatch."""
    typed = weave(operator, operands, attributes)
    for type_, field in zip(operands, (f for f in operator.fields if f.kind is Kind.TERM), strict=False):
        if isinstance(type_, TupleType) and operator.name != "tuple-get-item":
            raise TypeMismatch(f"{operator.name} requires {field.name} to be an access pattern, got {type_}")
    operator.check(*typed)
    result: Type = operator.result(*typed)
    return result


_known_type_of = lru_cache(maxsize=1 << 14)(_type_of)  # a network has few types


def unweave(operator: Operator, arguments: Sequence[Any]) -> tuple[tuple[Term, ...], tuple[Attribute, ...]]:
    """Splits arguments in field order into (children, attributes in canonical form)."""
    children: list[Term] = []
    attributes: list[Attribute] = []
    variadic = bool(operator.fields) and operator.fields[-1].kind is Kind.TERMS
    fixed = len(operator.fields) - variadic
    if len(arguments) < fixed or (len(arguments) > fixed and not variadic):
        names = " ".join(f.name for f in operator.fields)
        raise TypeMismatch(f"{operator.name} requires the arguments {names or '(none)'}, got {len(arguments)} of them")
    for field, value in zip(operator.fields, arguments, strict=False):
        if field.kind is Kind.TERM:
            children.append(_as_term(operator, field, value))
        elif field.kind is Kind.ACCESS_SHAPE:
            attributes += [Dims(map(as_integer, value[0])), Dims(map(as_integer, value[1]))]
        elif field.kind in (Kind.INTS, Kind.SHAPE):
            attributes.append(Dims(map(as_integer, value)))
        elif field.kind is Kind.INT:
            attributes.append(as_integer(value))
        elif field.kind is Kind.TENSOR:
            attributes.append(value)
        elif field.kind is not Kind.TERMS:
            attributes.append(str(value))
    if variadic:
        children += [_as_term(operator, operator.fields[-1], value) for value in arguments[fixed:]]
    return tuple(children), tuple(attributes)


def _as_term(operator: Operator, field: Field, value: Any) -> Term:
    if not isinstance(value, Term):
        raise TypeMismatch(f"{operator.name} requires {field.name} to be a term, got {value!r}")
    return value


def weave(operator: Operator, children: Sequence[Any], attributes: Sequence[Attribute]) -> tuple[Any, ...]:
    """Merges children and attributes into arguments in field order, the inverse of `unweave`; an ACCESS_SHAPE is a
    pair.
    """
    child, attribute = iter(children), iter(attributes)
    result: list[Any] = []
    for field in operator.fields:
        if field.kind is Kind.TERM:
            result.append(next(child))
        elif field.kind is Kind.TERMS:
            result += child
        elif field.kind is Kind.ACCESS_SHAPE:
            result.append((next(attribute), next(attribute)))
        else:
            result.append(next(attribute))
    return tuple(result)


@lru_cache(maxsize=4096)
def _index_map(operator: Operator, types: tuple[Type, ...], attributes: tuple[Attribute, ...]) -> IndexMap | None:
    map_ = operator.index_map
    return None if map_ is None else map_(*weave(operator, types, attributes))


def build(name: str, *arguments: Any) -> Term:
    """Builds a term by its operator's name: `build("access-slice", a, 0, 1, 3)`, with arguments in field order."""
    return make(OPERATORS[name], arguments)


def items_of(term: Term) -> Sequence[Term]:
    """Returns the items of a tuple, or a list of any other term."""
    if not isinstance(term.type, TupleType):
        return [term]
    if term.operator.name == "construct-tuple":
        return term.children
    return [build("tuple-get-item", term, i) for i in range(len(term.type.items))]


def postorder(*roots: Term, without: Container[Term] = ()) -> Iterator[Term]:
    """Yields every distinct term under the roots once, children before parents, left to right.

    Terms in `without`, and terms that only they need, are skipped.
    """
    done: dict[Term, None] = {}
    stack = [*reversed(roots)]
    while stack:
        term = stack[-1]
        if term in done or term in without:
            stack.pop()
            continue
        count = len(stack)
        for child in reversed(term.children):
            if child not in done and child not in without:
                stack.append(child)
        if len(stack) == count:
            stack.pop()
            done[term] = None
    return iter(done)


Replace = Callable[[Term, tuple[Term, ...]], Term | None]


def nearest(*roots: Term, stops: Callable[[Term], bool]) -> list[Term]:
    """Returns the first terms at or below roots for which `stops` holds, in order of appearance."""
    found, stack, seen = list[Term](), [*reversed(roots)], set[Term]()
    while stack:
        term = stack.pop()
        if term in seen:
            continue
        seen.add(term)
        if stops(term):
            found.append(term)
        else:
            stack += reversed(term.children)
    return found


def rebuild(root: Term, replace: Replace) -> Term:
    """Rebuilds a term: `replace` gets each subterm with its new children and returns its replacement, or None."""
    return rebuild_all([root], replace)[0]


def rebuild_all(roots: Sequence[Term], replace: Replace, done: dict[Term, Term] | None = None) -> list[Term]:
    """Rebuilds several terms, each subterm once; `done` holds the results of earlier calls, and gets the new ones."""
    done = {} if done is None else done
    for term in postorder(*roots, without=done):
        children = tuple([done[c] for c in term.children])
        new = replace(term, children)
        if new is None:  # equal terms are one object
            new = term if children == term.children else shared(term.operator, children, term.attributes)
        done[term] = new
    return [done[root] for root in roots]


def tensors(*roots: Term) -> Iterable[Term]:
    """Returns the distinct `access-tensor` leaves, in order of first appearance."""
    return (t for t in postorder(*roots) if t.operator.name == "access-tensor")


def constants_under(*roots: Term) -> dict[Term, bool]:
    """Returns for each term under the roots whether it is constant, so that it can be computed at compile time.

    Inputs and black boxes are not constant. `Operator.is_constant` decides for each operator, for e-classes too.
    """
    found: dict[Term, bool] = {}
    for term in postorder(*roots):
        declared = any(isinstance(a, Tensor) and a.constant for a in term.attributes)
        found[term] = term.operator.is_constant((found[c] for c in term.children), declared)
    return found
