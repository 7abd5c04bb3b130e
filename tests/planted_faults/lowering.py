"""Loops that do something else: a wrong index, a stride of another buffer, an initial value, a shared loop."""

_LOWER = "glenside/codegen/lowering/lower_terms.py"
_IN_PLACE = "glenside/codegen/lowering/concat_in_place.py"
_FILLING = "glenside/codegen/loop_ir/nest_builder.py"

FAULTS = (
    (
        _FILLING,
        "        return self.memory.stride(axis)",
        "        return dims.drop(axis + 1).product()",
        "computed indices move by rows of the tensor, not of the buffer",
    ),
    (
        _FILLING,
        "        moved = [index + offset for index, offset in zip(own, self.offsets, strict=True)]",
        "        moved = list(own)",
        "views begin at the first element of their memory",
    ),
    (
        _FILLING,
        "return flattened([indices[axis] for axis in self.axis_order], self._sizes)",
        "return flattened([indices[axis] for axis in range(len(indices))], self._sizes)",
        "indices are in the order of axes, not of memory",
    ),
    (
        _FILLING,
        '            return [Let(total, apply("add", total, product(factors(within), inner)), known=True)]',
        "            return [Let(total, product(factors(within), inner), known=True)]",
        "a sum is its last product",
    ),
    (
        _LOWER,
        'return convert(self.pull(term.children[0], places), dtype, bits=name == "bitcast")',
        "return convert(self.pull(term.children[0], places), dtype)",
        "bits are converted as numbers",
    ),
    (
        _LOWER,
        "            result = number(None if found.fill is Fill.LOWEST else 0, dtype)\n        for",
        "            result = number(0, dtype)\n        for",
        "the lowest padding is zero",
    ),
    (
        _LOWER,
        "        if not folds(expression):\n            return applied(expression, parts)\n",
        "        if not folds(expression):\n            return applied(expression, parts[::-1])\n",
        "operands of a fold of three are reversed",
    ),
    (
        _LOWER,
        "            found = applied(expression, [found, part])",
        "            found = applied(expression, [part, found])",
        "a fold takes its operands the other way",
    ),
    (
        _LOWER,
        "            same = Within(places[0] - places[1], 0, 1)",
        "            same = Within(places[0] - places[1], 0, 2)",
        "an identity has a second diagonal",
    ),
    (
        _LOWER,
        "            self.pull(child, (*places[:split], Index() + part, *places[split:])) for part in range(child.access.item[0])",
        "            self.pull(child, (*places[:split], Index() + part, *places[split:])) for part in range(min(2, child.access.item[0]))",
        "a fold leaves out operands after the second",
    ),
    (
        _IN_PLACE,
        "        value = number(None if fill is Fill.LOWEST else 0, nest.dtype)",
        "        value = number(1, nest.dtype)",
        "borders are filled with ones",
    ),
    (
        _IN_PLACE,
        "        place = nest.view.memory.place([moved[axis] + begin[axis] for axis in range(len(begin))])",
        "        place = nest.view.memory.place([moved[axis] for axis in range(len(begin))])",
        "borders are filled at the begin of the buffer",
    ),
    (
        "glenside/ir/tuples.py",
        "    return children[0].children[number]",
        "    return children[0].children[0]",
        "every place of a tuple is the first",
    ),
)
