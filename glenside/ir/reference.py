"""Generates the reference of the language from the records."""

from __future__ import annotations

from glenside.ir.dtypes import COMPUTED, STORED, WIDENED
from glenside.ir.operator import COMPUTES, OPERATORS, Category, Compute, Field, Keeps, Kind, Operator, OperatorKind
from glenside.ir.operators import SHAPE_FORMS, ShapeForm
from glenside.ir.scalar import arity, derivative, takes_reals

# Forms whose text is not given by their fields.
_FORMS = {
    "access-literal": "(access-literal (literal value dtype))",
    "access-product": "(access-product a b n) | (access-cartesian-product a b) | (access-pair a b)",
}

_EFFECTS = {
    Category.POINTWISE: "(S)(I) -> (S)(I), each element by itself",
    Category.FOLD: "(S)(I) -> (S)(I[1:]), folds the first axis of the item, left to right",
    Category.REDUCTION: "(S)(I) -> (S)(), over the whole item",
    Category.NORMALIZATION: "(S)(I) -> (S)(I), each item as a whole",
    Category.CONTRACTION: "(S)(I) -> (S)(), along the first axis of the item, then over the rest",
}


def _argument(field: Field) -> str:
    written = {
        Kind.TERMS: f"{field.name} ..",
        Kind.TEXT: f'"{field.name}"',
        Kind.INTS: f"(list {field.name} ..)",
        Kind.SHAPE: f"(shape {field.name[0]} ..)",
        Kind.ACCESS_SHAPE: "(access-shape (shape ..) (shape ..))",
    }
    return "|".join(field.choices) or written.get(field.kind, field.name)


def form(record: Operator | Compute | ShapeForm) -> str:
    """Returns how a record is written: `(access-slice a axis lo hi)`, `(compute (clip lo hi) a)`."""
    if isinstance(record, Compute):
        words = [record.name, *map(_argument, record.parameters)]
        return f"(compute {words[0] if len(words) == 1 else '(' + ' '.join(words) + ')'} a)"
    if isinstance(record, ShapeForm):
        return f"({' '.join([record.name, *(f.name for f in record.arguments)])})"
    return _FORMS.get(record.name, f"({' '.join([record.name, *map(_argument, record.fields)])})")


def summary() -> list[tuple[str, str]]:
    """Returns (form, meaning) of each operator, compute type and shape form, by name within each kind."""
    records: list[Operator | Compute | ShapeForm] = []
    for table in (OPERATORS, COMPUTES, SHAPE_FORMS):
        records += [table[name] for name in sorted(table)]
    return [(form(record), record.doc) for record in records]


def markdown() -> str:
    """Returns the reference page."""
    lines = ["# Operators", "", "An access pattern `(S)(I)` is a collection of shape S of items of shape I.", ""]
    sums = f"Sums of bfloat16 are accumulated in float32 and rounded once, sums of {', '.join(WIDENED)} in int32"
    lines += [f"Dtypes that are computed in: {', '.join(COMPUTED)}. {sums}.", ""]
    held = "Each element has a byte of its own in memory; ONNX files pack elements of 4 and 2 bits"
    lines += [f"Dtypes that are only stored, moved and cast: {', '.join(STORED)}. {held}.", ""]
    lines += _table("kind, preserved properties, index map", [OPERATORS[name] for name in sorted(OPERATORS)])
    for category, effect in _EFFECTS.items():
        kinds = [COMPUTES[name] for name in sorted(COMPUTES) if COMPUTES[name].category is category]
        lines += ["", f"## Compute types: {category.value}", "", f"{effect}.", ""]
        lines += _table("result dtype, preserved properties", kinds)
    forms = [SHAPE_FORMS[name] for name in sorted(SHAPE_FORMS)]
    lines += ["", "## Shapes", "", "Evaluated when a text is read.", "", *_table("", forms)]
    return "\n".join(lines) + "\n"


def _table(extra: str, records: list[Operator] | list[Compute] | list[ShapeForm]) -> list[str]:
    titles = ["form", *([extra, "derivative"] if extra else []), "meaning"]
    rows = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    for record in records:
        facts = [] if isinstance(record, ShapeForm) else [", ".join(facts_of(record)), differentiated(record)]
        cells = [f"`{form(record)}`", *facts, record.doc]
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return rows


def described(record: Operator | Compute) -> dict[str, str]:
    """Returns the content of a record: its form, meaning, properties, derivative and examples."""
    shown = "; ".join(example.text for example in record.examples)
    facts = ", ".join(facts_of(record))
    words = {"form": form(record), "meaning": record.doc, "facts": facts, "derivative": differentiated(record)}
    words["example"] = shown
    return {what: said for what, said in words.items() if said}


def differentiated(record: Operator | Compute) -> str:
    """Describes a record's derivative: scalar expressions, its adjoint, or why there is none."""
    if isinstance(record, Operator):
        if record.name == "compute":
            return "defined by its compute type"
        if record.adjoint is None:
            return "nothing to differentiate" if record.kind is OperatorKind.LEAF else "none declared"
        return f"none: {record.adjoint}" if isinstance(record.adjoint, str) else "its adjoint"
    if record.adjoint is not None:
        return "its adjoint"
    if record.scalar is None or record.dtype not in ("same", "widen"):
        return f"none: it gives {record.dtype}"
    expression = record.expression(*((f.choices or (f.name,))[0] for f in record.parameters))
    if not takes_reals(expression):
        return "none: it takes no reals"
    partials = [derivative(expression, position) for position in range(arity(expression))]
    return "; ".join(f"by {name}: {partial or 0}" for name, partial in zip("xyz", partials, strict=False))


def facts_of(record: Operator | Compute) -> list[str]:
    """Describes the properties of a record; the index map is that of its first example."""
    if isinstance(record, Compute):
        return [_dtype(record), *_kept(record.linear, record.keeps)]
    if record.kind in (OperatorKind.LEAF, OperatorKind.INSTRUCTION) or not record.examples:
        return [record.kind.value]
    term = record.examples[0].program().term
    if record.name == "compute":
        return [record.kind.value, "defined by its compute type"]
    arguments = term.arguments()
    facts = [record.kind.value, *_kept(record.is_linear(*arguments), record.kept(*arguments))]
    return facts if term.index_map is None else [*facts, f"`{term.index_map}`"]


def _kept(linear: bool, keeps: Keeps) -> list[str]:
    words = [name.lower() for name in Keeps.__members__ if Keeps[name] and Keeps[name] in keeps]
    return [*(["linear"] if linear else []), *([f"keeps {' and '.join(words)}"] if words else [])]


def _dtype(compute: Compute) -> str:
    names = {"same": "that of the operand", "widen": "that of the operand, int8, uint8 and int16 as int32"}
    return names.get(compute.dtype, compute.dtype)
