"""ONNX operators that are read as something else: an attribute left out, a version not asked for, an axis wrong."""

_FOLDER = "glenside/importers/onnx/operators"
_POINTWISE = f"{_FOLDER}/pointwise.py"
_REDUCTIONS = f"{_FOLDER}/reductions.py"
_SLICING = f"{_FOLDER}/slicing.py"
_LAYOUT = f"{_FOLDER}/layout.py"
_INDEXING = f"{_FOLDER}/indexing.py"
_PRODUCTS = f"{_FOLDER}/products.py"
_POOLS = f"{_FOLDER}/pools.py"

FAULTS = (
    (_POINTWISE, '"LessOrEqual": "(compare le)",', '"LessOrEqual": "(compare lt)",', "less or equal is less"),
    (
        _POINTWISE,
        '"Sum": "elementwise-add", "Min": "minimum", "Max": "maximum"',
        '"Sum": "elementwise-add", "Min": "maximum", "Max": "maximum"',
        "the least of operands is the largest",
    ),
    (
        _POINTWISE,
        'rounding = "truncate" if node.integer("fmod", 0) else "floor"',
        'rounding = "floor"',
        "fmod is not asked for",
    ),
    (
        _POINTWISE,
        "    return divide(total, filled(total, len(node.inputs)))",
        "    return divide(total, filled(total, 2))",
        "a mean is of two operands",
    ),
    (
        _POINTWISE,
        "return select(node.term(0), node.term(1), node.term(2))",
        "return select(node.term(0), node.term(2), node.term(1))",
        "the sides of Where are exchanged",
    ),
    (
        _POINTWISE,
        '        return compare("gt", x, filled(x, largest))\n    if below:',
        '        return compare("gt", compute("abs", x), filled(x, largest))\n    if below:',
        "infinity below zero counts as above",
    ),
    (
        _REDUCTIONS,
        '"ReduceL1": lambda node, x, axes: _sum(node, compute("abs", x), axes),',
        '"ReduceL1": lambda node, x, axes: _sum(node, x, axes),',
        "a norm is a sum",
    ),
    (_REDUCTIONS, '13 if node.op_type == "ReduceSum" else 18)', "13)", "axes of reductions are inputs too early"),
    (
        _REDUCTIONS,
        'last=bool(node.integer("select_last_index", 0))',
        "last=False",
        "the last of equal maxima is not asked for",
    ),
    (
        _REDUCTIONS,
        'exclusive = bool(node.integer("exclusive", 0))',
        "exclusive = False",
        "running sums are never exclusive",
    ),
    (
        _REDUCTIONS,
        'return add(compute("log", _sum(node, compute("exp", subtract(x, most)), axes)), most)',
        'return compute("log", _sum(node, compute("exp", subtract(x, most)), axes))',
        "the maximum is not added again",
    ),
    (
        _REDUCTIONS,
        "    return flip(result, axis) if reverse else result",
        "    return result",
        "a reversed running sum stays reversed",
    ),
    (
        _SLICING,
        "        if along.step < 0 and len(along) > 1:",
        "        if along.step < -1 and len(along) > 1:",
        "a step of -1 does not turn an axis",
    ),
    (
        _SLICING,
        "strides[axis] = abs(along.step) if len(along) > 1 else 1",
        "strides[axis] = 1 if len(along) < 3 else abs(along.step)",
        "two elements are neighbours, whatever the step",
    ),
    (
        _SLICING,
        "        pairs[axis] = (ends[i], ends[i + len(axes)])",
        "        pairs[axis] = (ends[2 * i], ends[2 * i + 1])",
        "pads come in pairs",
    ),
    (
        _SLICING,
        'upper = bool(node.integer("upper", 1))',
        'upper = bool(node.integer("upper", 0))',
        "a triangle is the lower one unless told",
    ),
    (
        _SLICING,
        "above, left = max(-k, 0), max(k, 0)",
        "above, left = max(k, 0), max(-k, 0)",
        "diagonals are on the other side",
    ),
    (
        _LAYOUT,
        '    order = node.integers("perm", range(rank)[::-1])',
        '    order = node.integers("perm", range(rank))',
        "without an order nothing is transposed",
    ),
    (
        _LAYOUT,
        "        return rearrange(x, (n, block, block, depth, h, w), (0, 3, 4, 1, 5, 2), dims)",
        "        return rearrange(x, (n, block, block, depth, h, w), (0, 3, 4, 2, 5, 1), dims)",
        "blocks are turned",
    ),
    (
        _LAYOUT,
        "first = axis + rank if axis < 0 else axis",
        "first = max(axis, 0)",
        "an axis from the end flattens everything",
    ),
    (
        _INDEXING,
        '    below = compare("lt", wanted, build("full", (), 0, "int64"))',
        '    below = compare("le", wanted, build("full", (), 0, "int64"))',
        "the first class of one-hot is the last",
    ),
    (
        _INDEXING,
        "place = int(value.item()) % size  # a known",
        "place = max(0, int(value.item()))  # a known",
        "a known index from the end is the first",
    ),
    (
        _PRODUCTS,
        '        groups=node.integer("group", 1),\n        name=node.layer_name(),\n    )\n\n\n@onnx_operator("ConvTranspose")',
        '        groups=1,\n        name=node.layer_name(),\n    )\n\n\n@onnx_operator("ConvTranspose")',
        "groups of convolutions are not asked for",
    ),
    (
        _PRODUCTS,
        "return node.builder.multiply(x, node.scope.filled(x.access.dims, np.array([factor]).astype(dtype)[0]))",
        "return x",
        "factors of Gemm are not asked for",
    ),
    (_POOLS, 'counted = bool(node.integer("count_include_pad", 0))', "counted = True", "averages count padding"),
)
