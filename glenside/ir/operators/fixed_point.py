"""Fixed-point numbers, as protocols of secure computation have them: each is an integer times 2^-f."""

from __future__ import annotations

from glenside.ir.example import example
from glenside.ir.index_map import same
from glenside.ir.operator import Kind, Operator, OperatorKind, fields, register
from glenside.ir.operators.requirements import require_float

truncate = register(
    Operator(
        name="truncate",
        kind=OperatorKind.VIEW,
        fields=fields(a=Kind.TERM),
        check=lambda a: require_float("truncate", a),
        result=lambda a: a,
        index_map=lambda a: same(a.dims),
        evaluate=lambda arithmetic, a: arithmetic.truncate(a),
        doc="a, with as many fractional bits as before its last product: that of fixed-point numbers of f bits has 2 f "
        "of them, and cutting f off rounds by less than 2^-f. The number that it stands for is that of a.",
        examples=example("(truncate (access (access-tensor x) 1))", x="m n"),
    )
)
