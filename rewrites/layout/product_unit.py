"""Maps products onto a unit that reads its operands and stores its result through affine addresses.

The unit only accepts operands in its own layout, with the required axis innermost in memory. For other operands a rule
proposes a copy in that layout, and equality does the rest: rearrangements move up from the copy (see `layout`), meet
others, and cost nothing once the product before stores them or the next one reads them.
"""

from __future__ import annotations

from typing import Any

from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites import parameters
from glenside.rewrites.declare import ROOT, Action, Clauses, Example, V, analysis, let, rule, union, when
from glenside.rewrites.facts import (
    ACCESS,
    INT,
    INTS,
    access_at,
    category,
    constant,
    dims,
    relation,
    source,
    split,
    varies,
)
from glenside.rewrites.layout.addressing import in_layout, innermost, storing, unit
from glenside.rewrites.layout.layout import ANYWHERE, BOXES, SHAPE, SHAPED, lifted
from glenside.rewrites.layout.rearranging import places_before, undone
from glenside.rewrites.mapping.mapping_search import EXAMPLE_PARAMETERS, cheapest
from glenside.rewrites.terms import is_dot, rearranged, sided, under, variables, vec, vec_range

FAMILY, ANALYSES = "product-unit", "product-unit-analyses"
# An operand of a product, and the tensor that it rearranges.
seen = relation("seen", operand=ACCESS, x=ACCESS, parts=INTS, order=INTS)
in_memory = relation("in-memory", x=ACCESS)
# x is in memory under some dims, with that axis innermost; `windowed` is 1 if x is windows of a tensor in memory.
held = relation("held", x=ACCESS, dims=INTS, axis=INT, windowed=INT)
want_layout = relation("want-layout", x=ACCESS)
# A tensor of the program that is in memory in the program's own order, along one axis.
own_order = relation("own-order", x=ACCESS)
# The product of a and b, which are rearrangements of x, held in that order, and of y.
read_product = relation(
    "read-product",
    product=ACCESS, a=ACCESS, b=ACCESS, shared=INT, x=ACCESS, x_parts=INTS, x_order=INTS,
    y=ACCESS, y_parts=INTS, y_order=INTS, held=INTS, axis=INT, windowed=INT
)  # fmt: skip
stored_elsewhere = relation(
    "stored-elsewhere", stored=ACCESS, unit=ACCESS, parts=INTS, order=INTS, shape=INTS, item=INTS
)
# A rearrangement of c, which is in its own order along one axis, its size, and the inverse rearrangement.
sinking = relation(
    "sinking",
    moved=ACCESS, c=ACCESS, parts=INTS, order=INTS, shape=INTS, item=INTS, size=INT, back_parts=INTS, back_order=INTS
)  # fmt: skip
UNIT_PRICES, UNIT_CYCLES = "unit-price-analyses", "unit-cycles"
unit_cycles = relation(UNIT_CYCLES, product=ACCESS, cycles=INT)
"""The least cycles of a product over its mappings. Units made from the product inherit the number."""
PARAMETERS = {"layout": 1, "loads": 2, "stores": 2}

_CONSTANT = [constant(access_at("w"))]


def _padded(x: str) -> str:
    return f"(access (access-pad {x} zero-padding 2 1 0) 1)"


def _convolution(x: str, window: str) -> str:
    return ex.dot(ex.windows(x, window, "1 1 1"), ex.W, 0)


_T = "(access-tensor x)"
_ROWS = ex.dot(ex.rearranged(_T, "$m $n 6", "2 1 0", "6", "$n $m"), ex.W, 0)
_SPLIT = ex.rearranged(_T, 60, 0, "4 3", 5)
_PLAIN = Example(ex.dot(_SPLIT, ex.W, 0), {"x": "4 3 5", "w": "o 5"}, (), PARAMETERS)
_MOVED = Example(_ROWS, {"x": "m n 6", "w": "o n m"}, (), {**PARAMETERS, "layout": 0})
_FIXED = Example(_ROWS, _MOVED.shapes, _CONSTANT, _MOVED.parameters)
_CONV = Example(_convolution(ex.X, "2 2 $k"), {"x": "m 5 7 k", "w": "o 2 2 k"}, _CONSTANT, PARAMETERS)
_FIRST = Example(_convolution(ex.X, "$k 2 2"), {"x": "m k 5 7", "w": "o k 2 2"}, (), PARAMETERS)
_PADDED_FIRST = Example(_convolution(_padded(_T), "$k 2 2"), _FIRST.shapes, (), PARAMETERS)
_BATCHED = Example(ex.dot(_SPLIT, ex.access("w", 2), 1), {"x": "4 3 5", "w": "4 o 5"}, (), PARAMETERS)


@analysis(ANALYSES, _PLAIN, _MOVED, _CONV)
def what_operands_hold_is_known(
    a: V, b: V, n: V, c: V, d: V, size: V, x: V, p: V, o: V, s: V, i: V, linear: V, y: V, k: V, t: V
) -> Clauses:
    """Records an operand of a product as itself, and as a rearrangement of a tensor in memory.

    An analysis: it adds no e-node. Sound because it only reads facts that hold.
    """
    product, sides = is_dot(a, b, n), (a, b)
    return (
        *(
            when(product, c == side, d == dims(c), size == d.product(), size > 0).then(seen(c, c, vec(size), vec(0)))
            for side in sides
        ),
        *(when(product, side == op.rearrange(x, p, o, s, i)).then(seen(side, x, p, o)) for side in sides),
        *(
            when(product, side == op.rearrange(linear, p, o, s, i), lifted(linear, x), x == op.windows(y, k, t)).then(
                seen(side, x, p, o)
            )
            for side in sides
        ),
    )


@analysis(ANALYSES, _PLAIN, _CONV, _MOVED)
def what_lies_innermost_is_known(
    c: V, x: V, y: V, p: V, o: V, q: V, r: V, s: V, i: V, k: V, t: V, d: V, dy: V, axis: V
) -> Clauses:
    """Records that computed and declared tensors are in memory in row-major order, and windows in that of their
    operand.

    An analysis: it adds no e-node. Sound because it only reads facts that hold.
    """
    f, u, v, n, lo, hi, padding, dtype, name, ap, ao, an, bp, bo, bn, sp, so = variables(
        "f u v n lo hi padding dtype name ap ao an bp bo bn sp so"
    )
    kinds = (
        *(op.compute(f, u), op.tensor(name), op.concatenate(u, v, n), op.pad(u, padding, n, lo, hi)),
        *(op.gather(u, v, n), op.cast(u, dtype), *(box(name, u, dtype, sp, so) for box in BOXES)),
        op.product_unit(n, u, ap, ao, an, v, bp, bo, bn, sp, so),
    )
    row_major = (d == dims(x), d.length > 0)
    last_is_innermost = held(x, d, axis=d.length - 1, windowed=0)
    return (
        when(
            seen(c, x, p, o), x == op.windows(y, k, t), dy == dims(y), axis == innermost.axis(k, dy), d == dims(x)
        ).then(held(x, d, axis, windowed=1)),
        *(when(ROOT == kind).then(in_memory(ROOT)) for kind in kinds),
        when(ROOT == op.rearrange(x, p, vec(0), s, i), in_memory(x)).then(in_memory(ROOT)),
        when(seen(c, x, p, o), in_memory(x), row_major).then(last_is_innermost),
        # A copy, in the order of the product itself, of a tensor in another order; windows are a view, not a copy.
        when(seen(x, x, p, o), x == op.rearrange(y, q, r, s, i), in_memory(y), row_major).then(last_is_innermost),
    )


@analysis(FAMILY, Example(ex.moved("2 3", "1 0", "", "3 2"), {"x": "6"}))
def what_has_its_own_order_is_known(x: V, n: V, s: V, i: V, c: V, p: V, o: V, size: V) -> Clauses:
    """Records, among all layouts of a tensor of the program, the program's own, and the rearrangements of it.

    An analysis: it adds no e-node. Sound because it only reads facts that hold. It only matches flat tensors, because a
    tensor with other dims is not another layout; so the result does not depend on the order of the rules.
    """
    parts, order = variables("parts order")
    return (
        when(source(ROOT), ROOT == op.rearrange(x, n, vec(0), s, i)).then(own_order(x)),
        when(ROOT == op.rearrange(x, n, vec(0), s, i), source(x)).then(own_order(ROOT)),
        when(source(ROOT), n == dims(ROOT), n.length == 1, split(ROOT) == 0).then(own_order(ROOT)),
        when(
            *(varies(ROOT), own_order(c), ROOT == op.rearrange(c, p, o, s, i), o != vec(0), size == p.product()),
            *(dims(c) == vec(size), split(c) == 0),
            undone.facts(p, o, parts=parts, order=order),
        ).then(sinking(ROOT, c, p, o, s, i, size, parts, order)),
    )


@rule(FAMILY, _PLAIN, _MOVED, _FIXED, _CONV, _BATCHED)
def product_runs_on_the_unit(a: V, b: V, n: V, x: V, p: V, o: V, y: V, q: V, r: V, d: V) -> Clauses:
    """dot(a x b) = rearrange(product-unit(x, y)), where a and b are rearrangements of x and y.

    Only if the unit accepts x as it is in memory. Rows and items are read in memory order; a constant b is put into
    that order beforehand. Sound because a sum does not depend on the order of its terms, and because the rows of the
    result are put back into the order of the product.
    """
    da, sa, db, sb, read, shared, stored, axis, windowed = variables("da sa db sb read shared stored axis windowed")
    a_parts, a_order, a_split, b_parts, b_order, b_split, parts, order, fixed_parts, fixed_order = variables(
        "a-parts a-order a-split b-parts b-order b-split parts order fixed-parts fixed-order"
    )
    # The few candidates first: joining them with the tables of shapes at once is much slower.
    of_x, of_y = {"x": x, "x_parts": p, "x_order": o}, {"y": y, "y_parts": q, "y_order": r}
    found = read_product(ROOT, a, b, n, **of_x, **of_y, held=d, axis=axis, windowed=windowed)
    sizes = (sided(a, da, sa), sided(b, db, sb))
    addresses = (parameters.layout, parameters.loads, parameters.stores)
    operands = (p, o, da, sa, q, r, db, sb, n, d, axis, windowed, *addresses)
    of_a, of_b = {"a_parts": a_parts, "a_order": a_order, "a_split": a_split}, {"b_parts": b_parts, "b_order": b_order}
    result = {"b_split": b_split, "shared": shared, "stored": stored, "parts": parts, "order": order}

    def on_unit(weights: V, weight_parts: V, weight_order: V) -> Action:
        left, right = (x, a_parts, a_order, a_split), (weights, weight_parts, weight_order, b_split)
        results = op.product_unit(shared, *left, *right, stored, vec_range(stored.length))
        return union(ROOT, rearranged(results, parts, order, SHAPE, vec()))

    return (
        when(is_dot(a, b, n), seen(a, x, p, o), held(x, d, axis, windowed), seen(b, y, q, r)).then(found),
        when(
            *(found, constant(b), sizes, unit.facts(*operands, 1, **of_a, **of_b, **result), SHAPED),
            *(unit.facts(*operands, 1, fixed_parts=fixed_parts, fixed_order=fixed_order)),
            read == b_parts.permute(b_order),
        ).then(on_unit(rearranged(y, fixed_parts, fixed_order, vec(), read), read, vec_range(read.length))),
        when(found, varies(b), sizes, unit.facts(*operands, 0, **of_a, **of_b, **result), SHAPED).then(
            on_unit(y, b_parts, b_order)
        ),
    )


_UNIT = (
    "(product-unit 0 (access-tensor x) (shape 3 $k) (list 0 1) 1 (access-tensor w) (shape 6 $k) (list 0 1) 1"
    " (shape 3 6) (list 0 1))"
)
_FLAT_UNIT = ex.rearranged(_UNIT, 18, 0, "", 18)
_UNIT_SIZES = {"x": "3 k", "w": "6 k"}


@rule(
    FAMILY,
    Example(ex.rearranged(_FLAT_UNIT, "3 2 3", "2 0 1", "", "3 3 2"), _UNIT_SIZES, _CONSTANT, PARAMETERS),
    Example(ex.rearranged(_FLAT_UNIT, "3 2 3", "1 0 2", "", "2 3 3"), _UNIT_SIZES, (), PARAMETERS),
)
def unit_stores_a_rearrangement(linear: V, u: V, p: V, o: V, s: V, i: V, x: V, y: V) -> Clauses:
    """rearrange(product-unit(x, y)) = product-unit(x, y with its rows in another order), stored elsewhere.

    A depth_to_space after a convolution thereby becomes the addresses of its results. Sound because a row of y gives
    one row of results, wherever it is, and because storing is itself a rearrangement.
    """
    n, ap, ao, an, bp, bo, bn, sp, so = variables("n ap ao an bp bo bn sp so")
    read_a, from_a, read_b, size, stored = variables("read-a from-a read-b size stored")
    q, r, moved_parts, moved_order, rows_end, parts, order = variables(
        "q r moved-parts moved-order rows-end parts order"
    )
    of_x, of_y = (
        (n, x, ap, ao, an),
        {"b_parts": q, "b_order": r, "moved_parts": moved_parts, "moved_order": moved_order},
    )
    of_result = {"parts": parts, "order": order, "split": rows_end}
    on_unit = u == op.product_unit(*of_x, y, bp, bo, bn, sp, so)
    found = stored_elsewhere(ROOT, u, parts=p, order=o, shape=s, item=i)
    facts = (
        *(found, on_unit, read_a == ap.permute(ao), from_a == read_a.take(an)),
        *(read_b == bp.permute(bo), size == sp.product()),
        storing.facts(*(from_a, read_b, bn, n, sp, so, p, o, parameters.stores), **of_y, **of_result),
    )
    moved = rearranged(y, moved_parts, moved_order, vec(), q)
    under_root = union(ROOT, under(stored, size, s, i))
    return (
        # Only for results that are stored in computed order; others would lead to the same units again.
        when(
            *(ROOT == op.rearrange(linear, p, o, s, i), o != vec(0), lifted(linear, u)),
            *(on_unit, so == vec_range(so.length)),
        ).then(found),
        when(facts, constant(y), bo == vec_range(bo.length)).then(
            let(stored, op.product_unit(*of_x, moved, q, r, rows_end, parts, order)), under_root
        ),
        when(facts, moved_order == vec(0)).then(
            let(stored, op.product_unit(*of_x, y, bp, bo, bn, parts, order)), under_root
        ),
    )


_RELU = "(compute relu (access-tensor x))"
_PLACES = "(list 2 3) (list 0)"
_BOXES = (("pointwise", ANYWHERE), ("pointwise", _PLACES), ("items", _PLACES))
_DIFFERENCE = ex.pairs("subtract", "(access-tensor x)", "(access-tensor y)")


@rule(
    FAMILY,
    *(
        Example(ex.rearranged(computed, "2 3", "1 0", "", "3 2"), {"x": "6"})
        for computed in (
            *(_RELU, "(cast (access-tensor x) int8)"),
            *(f'(opaque-{seen} "f" (access-tensor x) int8 {places})' for seen, places in _BOXES),
        )
    ),
    Example(ex.rearranged(_DIFFERENCE, "2 3", "1 0", "", "3 2"), {"x": "6", "y": "6"}),
)
def rearrangement_sinks_to_the_unit(
    c: V, p: V, o: V, s: V, i: V, f: V, b: V, e: V, t: V, size: V, computed: V, back_parts: V, back_order: V
) -> Clauses:
    """rearrange(f(b)) = f(rearrange(b)), for pointwise f and for an f of two whole tensors.

    In turn, f(b) is a rearrangement of f(rearrange(b)), so all readers of f(b) may read that form instead. A layout
    that a unit stores without cost thereby extends past a bias and an activation. Only from the program's own layout,
    since other layouts would give the same results again. Sound because each element is computed by itself, and its
    operands are moved equally.
    """
    u, v, parts, axes = variables("u v parts axes")
    back = (back_parts, back_order)
    facts = sinking(ROOT, c, p, o, s, i, size, *back)
    in_place = (union(ROOT, under(computed, size, s, i)), union(c, rearranged(computed, *back, vec(), vec(size))))

    def moved(x: V) -> Any:
        return rearranged(x, p, o, vec(), vec(size))

    return (
        when(facts, c == op.compute(f, b), category(f, "pointwise")).then(
            let(computed, op.compute(f, moved(b))), *in_place
        ),
        when(facts, c == op.cast(b, t)).then(let(computed, op.cast(moved(b), t)), *in_place),
        *(
            when(
                *(facts, c == box(f, b, t, u, v)),
                places_before.facts(*back, u, v, parts=parts, axes=axes),
            ).then(let(computed, box(f, moved(b), t, parts, axes)), *in_place)
            for box in BOXES
        ),
        when(facts, c == op.compute(f, op.product(b, e, 0)), category(f, "fold"), split(b) == 0, split(e) == 0).then(
            let(computed, op.compute(f, op.product(moved(b), moved(e), 0))), *in_place
        ),
    )


@analysis(ANALYSES, _FIRST, _PADDED_FIRST)
def layouts_are_wanted(
    c: V, x: V, y: V, p: V, o: V, d: V, dy: V, axis: V, k: V, t: V, padding: V, n: V, lo: V, hi: V
) -> Clauses:
    """Demands the unit's layout for the tensor under the windows of a product, and for the tensor that was padded to
    it.

    Only for windows of the program itself; windows that layout rules have added already have the layout. An analysis:
    it adds no e-node. Sound because a demand only says where a rule applies.
    """
    return (
        when(
            *(seen(c, x, p, o), held(x, d, axis, windowed=1), source(x), x == op.windows(y, k, t), source(y)),
            *(dy == dims(y), axis == dy.length - 1),
        ).then(want_layout(y)),
        when(want_layout(y), y == op.access(x, n)).then(want_layout(x)),
        when(want_layout(y), y == op.pad(x, padding, n, lo, hi)).then(want_layout(x)),
    )


@rule(
    FAMILY,
    _FIRST,
    _PADDED_FIRST,
    Example(
        _FIRST.text.replace("$k", "8"),
        {"x": "m 8 5 7", "w": "o 8 2 2"},
        [want_layout(access_at("x"))],
        {**PARAMETERS, "layout": 4},
    ),
)
def a_layout_is_proposed(d: V, p: V, o: V, sizes: V, q: V, r: V, proposed: V) -> Clauses:
    """x = rearrange(rearrange(x; channels innermost); back).

    Sound because the second undoes the first.
    """
    return when(
        *(want_layout(ROOT), split(ROOT) == 0, d == dims(ROOT)),
        in_layout.facts(d, parameters.layout, parts=p, order=o, sizes=sizes),
        undone.facts(p, o, parts=q, order=r),
    ).then(let(proposed, rearranged(ROOT, p, o, vec(), sizes)), union(ROOT, rearranged(proposed, q, r, vec(), d)))


@analysis(
    UNIT_PRICES,
    Example(ex.MATMUL, {"x": "m k", "w": "n k"}, parameters=EXAMPLE_PARAMETERS),
    Example(ex.rearranged(_UNIT, 18, 0, 3, 6), _UNIT_SIZES, [unit_cycles(access_at("root"), 7)], EXAMPLE_PARAMETERS),
)
def units_take_the_cheapest_mapping(cycles: V, unit: V, linear: V, other: V) -> Clauses:
    """cycles(unit) = cycles(dot(p)) if dot(p) = rearrange(unit), and the same for two units that are rearrangements.

    An analysis: it adds no e-node. Sound because it only reads facts that hold: a mapping consists of addresses and
    constants, so a unit with free addresses runs it for any order of its operands.
    """
    flat = linear == op.rearrange(unit, *variables("parts order shape item"))
    moved = ROOT == op.rearrange(linear, *variables("parts1 order1 shape1 item1"))
    stored = ROOT == op.rearrange(other, *variables("parts2 order2 shape2 item2"))
    is_unit = other == op.product_unit(*variables("n a ap ao an b bp bo bn sp so"))
    return (
        when(cycles == cheapest(ROOT)).then(unit_cycles(ROOT, cycles)),
        when(unit_cycles(ROOT, cycles), stored, is_unit).then(unit_cycles(other, cycles)),
        when(unit_cycles(unit, cycles), flat, moved, stored, is_unit).then(unit_cycles(other, cycles)),
    )
