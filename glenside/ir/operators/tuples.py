"""Tuples of access patterns."""

from __future__ import annotations

from glenside.ir.example import example
from glenside.ir.operator import Kind, Operator, OperatorKind, fields, register, require
from glenside.ir.types import TupleType, Type


def _check_get(a: Type, index: int) -> None:
    if not isinstance(a, TupleType):
        require(False, "tuple-get-item", "a tuple", a)
    else:
        require(0 <= index < len(a.items), "tuple-get-item", f"0 <= index < {len(a.items)}", index)


construct_tuple = register(
    Operator(
        name="construct-tuple",
        kind=OperatorKind.VIEW,
        fields=fields(items=Kind.TERMS),
        check=lambda *items: None,
        result=lambda *items: TupleType(items),
        evaluate=lambda _, *items: items,
        doc="Several access patterns as one value.",
        symbolic=False,  # a tuple has no dims
        examples=example("(construct-tuple (access (access-tensor x) 1) (access-tensor y))", x="m n", y="k"),
    )
)

tuple_get_item = register(
    Operator(
        name="tuple-get-item",
        kind=OperatorKind.VIEW,
        fields=fields(a=Kind.TERM, index=Kind.INT),
        check=_check_get,
        result=lambda a, index: a.items[index],
        evaluate=lambda _, a, index: a[index],
        doc="One element of a tuple, counted from 0.",
        symbolic=False,  # a tuple has no dims
        examples=example(
            "(tuple-get-item (construct-tuple (access (access-tensor x) 1) (access-tensor y)) 1)",
            x="m n",
            y="k",
        ),
    )
)
