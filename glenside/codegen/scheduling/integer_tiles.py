"""Integer register tiles: exact int32 accumulators of products of narrow integers, several products per instruction.

If one operand is constant bytes and the other is the same for all columns, an instruction adds four products:
sum (u - z) w = sum u w - z sum w, with unsigned bytes u and signed bytes w. Signed bytes become unsigned by adding 128
to them and to the zero point; if the constants are unsigned, the other factor is made signed. The correction z sum w
is one more row of the tile, whose bytes are all z: the same for all rows, and exact, since sums wrap. Other factors
that fit 16 bits are multiplied lane by lane.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from glenside.codegen.loop_ir.affine_analysis import coefficient
from glenside.codegen.loop_ir.compute_block import Block
from glenside.codegen.loop_ir.intrinsics import DOT_4, DOT_4_TURNED, PRODUCT_OF_16
from glenside.codegen.loop_ir.ir import (
    Apply,
    Buffer,
    Convert,
    Formula,
    Load,
    Number,
    Role,
    Statement,
    Store,
)
from glenside.codegen.loop_ir.scalar_expr import apply, convert, number
from glenside.codegen.processor.model import Machine
from glenside.codegen.scheduling.dot_product_tiles import DeepTiles
from glenside.codegen.scheduling.tile_partition import Tile, TilePosition
from glenside.ir.dtypes import INTEGERS, limits
from glenside.ir.index_map import Axis
from glenside.ir.types import Dims

_BYTES = ("int8", "uint8")


@dataclass(frozen=True)
class Factor:
    """The int32 value (byte + shift, wrapped, read as signed or unsigned) - zero.

    by  a further addend of the byte: a scalar that is read at run time and is the same for all elements
    """

    load: Load
    shift: int
    signed: bool
    zero: int
    by: Load | None = None

    def made(self, signed: bool) -> Factor:
        """Returns an equal factor whose byte is signed, or unsigned."""
        if self.signed == signed:
            return self
        zero = self.zero - 128 if signed else self.zero + 128
        return replace(self, shift=(self.shift + 128) % 256, signed=signed, zero=zero)

    @property
    def added(self) -> Formula:
        """Returns the sum of all addends of the byte."""
        shift = number(self.shift, "uint8")
        if self.by is None:
            return shift
        by = convert(self.by, "uint8")
        return apply("add", by, shift) if self.shift else by


def factor_of(formula: Formula) -> Factor | None:
    """Matches a formula of a byte with a zero point; returns None for other formulas."""
    zero = 0
    if isinstance(formula, Apply) and formula.primitive.name == "subtract":
        formula, less = formula.operands
        if not isinstance(less, Number) or less.value is None:
            return None
        zero = int(less.value)
    if not isinstance(formula, Convert) or formula.dtype != "int32" or formula.formula.dtype not in _BYTES:
        return None
    inner, shift, by = formula.formula, 0, None
    signed = inner.dtype == "int8"
    while not isinstance(inner, Load):
        if isinstance(inner, Apply) and inner.primitive.name in ("add", "subtract"):
            more, adds = inner.operands[1], inner.primitive.name == "add"
            if isinstance(more, Number) and more.value is not None:
                shift += int(more.value) if adds else -int(more.value)
            elif adds and by is None and isinstance(more, Load) and not more.place.terms and not more.picked:
                by = more
            else:
                return None
            inner = inner.operands[0]
        elif isinstance(inner, Convert) and not inner.bits and inner.formula.dtype in _BYTES:
            inner = inner.formula
        else:
            return None
    return Factor(inner, shift % 256, signed, zero, by)


def _bounds(formula: Formula) -> tuple[int, int]:
    """Returns lower and upper bounds of an integer formula."""
    if isinstance(formula, Number) and formula.value is not None:
        return int(formula.value), int(formula.value)
    if isinstance(formula, Convert) and not formula.bits and formula.formula.dtype in INTEGERS:
        low, high = _bounds(formula.formula)
        least, most = limits(formula.dtype)
        return (low, high) if least <= low and high <= most else (least, most)
    if isinstance(formula, Apply) and formula.primitive.name == "subtract":
        (a, b), (c, d) = map(_bounds, formula.operands)
        least, most = limits(formula.dtype)
        return (a - d, b - c) if least <= a - d and b - c <= most else (least, most)
    return limits(formula.dtype)


class IntegerTiles(DeepTiles):
    """Register tiles with int32 accumulators."""

    deep = 4
    nothing = number(0, "uint8")

    def __init__(self, block: Block, axes: Iterator[int], machine: Machine) -> None:
        super().__init__(block, axes, machine)
        element = self.joined.element
        product = isinstance(element, Apply) and element.primitive.name == "multiply" and self.joined.combine == "add"
        self.factors: Sequence[Formula] = element.operands if product and isinstance(element, Apply) else ()
        self.pair = self._bytes() if self.factors and self.has_columns else None
        self.at_once = self.deep if self.pair else 1
        self.less: dict[str, Buffer] = {}

    @property
    def is_possible(self) -> bool:
        return self.dtype == "int32" and super().is_possible

    def _bytes(self) -> tuple[Factor, Factor] | None:
        """Returns the factor that is the same for all columns and the packed one, or None if there is no such pair."""
        found = [factor_of(formula) for formula in self.factors]
        a, b = found if found[1] is None or found[1].load in self.packed else found[::-1]
        if a is None or b is None or self.packed != (b.load,) or coefficient(a.load.place, self.columns):
            return None
        a = a.made(signed=not b.signed)
        plain = not b.shift and not b.zero and b.by is None
        least, most = limits("int8" if a.signed else "uint8")
        return (a, b) if plain and least <= a.zero <= most else None

    def _may_be_rows(self, axis: Axis) -> bool:
        """True unless there is a zero point and the weights vary along the axis: its correction is one for all rows."""
        return not (self.pair and self.pair[0].zero and coefficient(self.pair[1].load.place, axis))

    def _beside(self, width: int) -> int:
        less = width if self.pair and self.pair[0].zero else 0
        return super()._beside(width) + less

    def _joined(self, sum_: Formula, element: Formula) -> Formula:
        """Returns the accumulator plus a product, by the 16-bit instruction if both factors fit 16 bits."""
        if isinstance(element, Apply) and self.factors and all(map(_is_short, self.factors)):
            return Apply(PRODUCT_OF_16, (sum_, *element.operands), self.dtype)
        return super()._joined(sum_, element)

    @property
    def operands(self) -> tuple[Load, Load] | None:
        return (self.pair[0].load, self.pair[1].load) if self.pair else None

    def _summed(self, tile: Tile, position: TilePosition | None) -> list[Statement]:
        zeros = bool(self.pair and self.pair[0].zero)
        before = tile.each(self._less(tile, number(0, self.dtype)), rows=False) if zeros else []
        return [*before, *super()._summed(tile, position)]

    def several(self, tile: Tile, same: Sequence[Formula], block: Sequence[Load]) -> list[Statement]:
        assert self.pair, "there are factors"
        a, _ = self.pair

        def more(sum_: Load, shift: Formula, word: Sequence[Formula]) -> Store:
            value = Apply(DOT_4_TURNED if a.signed else DOT_4, (sum_, shift, *word, *block), self.dtype)
            return Store(sum_.buffer, sum_.place, value)

        found = tile.each(more(Load(tile.registers, tile.own), a.added, same))
        if a.zero:
            less = self._less(tile, number(0, self.dtype))
            zeros = [number(a.zero % 256, "uint8")] * self.deep
            found += tile.each(more(Load(less.buffer, less.place), number(0, "uint8"), zeros), rows=False)
        return found

    def _less(self, tile: Tile, value: Formula) -> Store:
        """Returns the store of a value to the zero-point correction of a column."""
        name = f"{tile.registers.name}less"
        if name not in self.less:
            self.less[name] = Buffer(name, Dims((tile.width,)), self.dtype, Role.REGISTER)
        return Store(self.less[name], tile.column, value)

    def _sum(self, tile: Tile) -> Formula:
        found = super()._sum(tile)
        if not self.pair or not self.pair[0].zero:
            return found
        less = self._less(tile, found)
        return apply("subtract", found, Load(less.buffer, less.place))


def _is_short(formula: Formula) -> bool:
    low, high = _bounds(formula)
    return -(1 << 15) <= low and high < 1 << 15
