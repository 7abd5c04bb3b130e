"""Rules that say what is not so: a wrong index, a missing guard, operands in the wrong order."""

_ALGEBRA = "glenside/rewrites/movement/algebra.py"
_COMPUTES = "glenside/rewrites/movement/through_computes.py"
_FOLDING = "glenside/rewrites/layout/folding.py"
_MATRICES = "glenside/rewrites/mapping/matrices.py"
_CONTRACTION = "glenside/rewrites/mapping/contraction.py"
_PHASES = "glenside/rewrites/convolution/phases.py"

FAULTS = (
    (_ALGEBRA, "op.slice(a, x, lo + low, lo + high))", "op.slice(a, x, lo + low, hi))", "a slice of a slice ends late"),
    (
        _ALGEBRA,
        "    return rewrite(op.slice(a, x, 0, hi), a, d == dims(a), hi == d[x])",
        "    return rewrite(op.slice(a, x, 0, hi), a, d == dims(a))",
        "a slice from 0 on is everything",
    ),
    (
        _ALGEBRA,
        "union(ROOT, op.slice(b, x, lo - at, hi - at))",
        "union(ROOT, op.slice(b, x, lo - at, hi - lo))",
        "a slice of the second part has another end",
    ),
    (_ALGEBRA, "when(both, cut, hi <= at)", "when(both, cut, lo <= at)", "a slice over both parts is one of the first"),
    (
        _ALGEBRA,
        "op.transpose(op.slice(a, p[x], lo, hi), p), tiled(a))",
        "op.transpose(op.slice(a, x, lo, hi), p), tiled(a))",
        "a slice sinks into the axis of the result",
    ),
    (
        _ALGEBRA,
        "op.transpose(op.pad(a, kind, p[x], before, after), p),",
        "op.transpose(op.pad(a, kind, p[x], after, before), p),",
        "a pad changes sides under a transpose",
    ),
    (
        _ALGEBRA,
        "op.transpose(op.concatenate(a, b, p[x]), p),",
        "op.transpose(op.concatenate(b, a, p[x]), p),",
        "parts change places under a transpose",
    ),
    (_ALGEBRA, "order == p.permute(q))", "order == q.permute(p))", "two transposes compose in the wrong order"),
    (
        _ALGEBRA,
        "d == dims(a), n == split(a), n == s.length, d == s.append(i)),",
        "d == dims(a), n == split(a), n == s.length, d.product() == s.append(i).product()),",
        "a reshape to as many elements is nothing",
    ),
    (
        _ALGEBRA,
        "    return rewrite(op.pad(a, kind, x, 0, 0), a)",
        "    return rewrite(op.pad(a, kind, x, 0, 1), op.pad(a, kind, x, 1, 0))",
        "a pad behind is one before",
    ),
    (
        _ALGEBRA,
        "    one = (d == dims(a), s == split(a), d.length == s + 1, d[s] == 1)",
        "    one = (d == dims(a), s == split(a), d.length == s + 1, d[s] < 3)",
        "a sum of two is the first",
    ),
    (
        _COMPUTES,
        "op.concatenate(op.compute(f, a), op.compute(f, b), x),",
        "op.concatenate(op.compute(f, a), op.compute(f, a), x),",
        "a computation of two parts computes the first twice",
    ),
    (
        _COMPUTES,
        '        (category(f, "pointwise"), s == split(a), x >= s),',
        '        (category(f, c), c != "contraction", s == split(a), x >= s),',
        "a function of items sees its parts apart",
    ),
    (
        _COMPUTES,
        '        rewrite(left, right, source(a), category(f, "pointwise"), keeps_zero(f)),',
        '        rewrite(left, right, source(a), category(f, "pointwise")),',
        "every pointwise function keeps zero",
    ),
    (
        _COMPUTES,
        '        rewrite(left, op.transpose(op.compute(f, a), shape), source(a), category(f, "reduction"), item_stays),',
        '        rewrite(left, op.transpose(op.compute(f, a), vec_range(s)), source(a), category(f, "reduction"), item_stays),',
        "a reduction of a transposed tensor is not transposed",
    ),
    (
        _COMPUTES,
        'any_order = (category(f, "reduction"), f != "argmax", f != "argmin")',
        'any_order = (category(f, "reduction"),)',
        "the place of a maximum does not depend on order",
    ),
    (
        _COMPUTES,
        "op.elementwise_add(op.product(op.reduce_sum(a), op.reduce_sum(b), s)),",
        "op.elementwise_add(op.product(op.reduce_sum(a), op.reduce_sum(a), s)),",
        "a sum of two parts is twice the first",
    ),
    (
        _FOLDING,
        "union(ROOT, _pair(op.elementwise_add, _pair(op.elementwise_mul, x, e), _pair(op.elementwise_mul, c, e)))",
        "union(ROOT, _pair(op.elementwise_add, _pair(op.elementwise_mul, x, e), c))",
        "a factor forgets the constant that is added",
    ),
    (
        _FOLDING,
        "        union(ROOT, _pair(op.elementwise_add, x, op.negative(c)))",
        "        union(ROOT, _pair(op.elementwise_add, op.negative(x), c))",
        "a difference changes its sign",
    ),
    (
        _FOLDING,
        '_pair(op.elementwise_div, op.full(d, "1", kind), c)))',
        '_pair(op.elementwise_div, op.full(d, "2", kind), c)))',
        "a quotient is twice as large",
    ),
    (
        _MATRICES,
        "        union(ROOT, transposed(swapped, 0, 2, 1)),",
        "        union(ROOT, reshaped(swapped, vec(g, m, o), 3)),",
        "swapped operands are not swapped back",
    ),
    (
        _MATRICES,
        "op.slice(reshaped(product, vec(g, together * r, o), 3), 1, 0, m)",
        "op.slice(reshaped(product, vec(g, together * r, o), 3), 1, together * r - m, together * r)",
        "rows that were added are kept",
    ),
    (
        _MATRICES,
        "    left = transposed(reshaped(left, vec(g, mt, ms, 1, kt, rows), 5), 0, 1, 3, 4, 2, 5)",
        "    left = reshaped(left, vec(g, mt, 1, kt, ms, rows), 5)",
        "tiles of rows are not turned",
    ),
    (
        _CONTRACTION,
        "op.concatenate(op.slice(ROOT, axis, 0, half), op.slice(ROOT, axis, half, whole), axis)",
        "op.concatenate(op.slice(ROOT, axis, half, whole), op.slice(ROOT, axis, 0, half), axis)",
        "the parts of an axis change places",
    ),
    (
        "glenside/rewrites/convolution/position_tables.py",
        "return (p + tap * d - begin) // gap, count,",
        "return (p + tap * d) // gap, count,",
        "a phase begins as if nothing were padded",
    ),
    (
        _PHASES,
        "            set_(stack(low, high), op.concatenate(lower, upper, i + 1))",
        "            set_(stack(low, high), op.concatenate(upper, lower, i + 1))",
        "phases take turns in the wrong order",
    ),
)
