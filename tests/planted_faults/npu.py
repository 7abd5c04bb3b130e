"""Programs of an npu that compute something else, or that the machine does not run."""

_OPERANDS = "glenside/npu/lowering/transfer/dram_operands.py"
_TILES = "glenside/npu/lowering/tiling/layer_tiles.py"
_SUMS = "glenside/npu/lowering/tiling/element_sums.py"
_RUNS = "glenside/npu/lowering/tiling/tile_order.py"

FAULTS = (
    (
        _OPERANDS,
        "    order = [*(other for other in range(len(dims)) if other != axis), axis]",
        "    order = [axis, *(other for other in range(len(dims)) if other != axis)]\n    order[0], order[-1] = order[-1], order[0]\n    dims = [*dims[:-1], max(1, dims[-1] - 1)]",
        "elements of two rows share a byte",
    ),
    (
        _OPERANDS,
        "every = addresses[:, None, None] + (np.arange(rows)[:, None] * width + np.arange(columns))",
        "every = addresses[:, None, None] + (np.arange(rows)[:, None] * width + np.arange(columns)[::-1])",
        "weights that are computed are turned",
    ),
    (
        _OPERANDS,
        "packed[spread.places[:, 1]] = content.reshape(-1)[spread.places[:, 0]]",
        "packed[spread.places[:, 1]] = content.reshape(-1)[spread.places[::-1, 0]]",
        "weights that are spread are turned",
    ),
    (
        _TILES,
        "last = width - np.argmax(self.enabled[:, ::-1], axis=1)\n        return np.where(self.enabled.any(axis=1), last, 1)",
        "last = width - np.argmax(self.enabled[:, ::-1], axis=1)\n        return np.where(self.enabled.any(axis=1), np.maximum(last - 1, 1), 1)",
        "the last row of weights is not loaded",
    ),
    (
        _TILES,
        "            line[each.tiles[0] * m : (each.tiles[0] + 1) * m] += number * m",
        "            line[each.tiles[0] * m : (each.tiles[0] + 1) * m] += max(0, number - 1) * m",
        "the second group has the sums of the first",
    ),
    (
        _SUMS,
        "        found[reached] = numbers[(..., *position)]",
        "        found[reached] = numbers[(..., *(0 for _ in position))]",
        "sums of windows add the first element of each",
    ),
    (
        _RUNS,
        "yield Run(number, tile, first, after, place == 0, place == len(group.tiles) - 1)",
        "yield Run(number, tile, first, after, True, place == len(group.tiles) - 1)",
        "sums of the first tiles are lost",
    ),
)
