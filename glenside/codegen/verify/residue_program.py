"""Prints loops as plain C over residues modulo a prime: one element after the other, registers as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from glenside.codegen.emit_c.amx import residues_function
from glenside.codegen.emit_c.printer import Printer
from glenside.codegen.emit_c.translation_units import Source
from glenside.codegen.loop_ir.bf16_split_matmul import MatrixProduct, product_of
from glenside.codegen.loop_ir.ir import (
    Apply,
    Buffer,
    Convert,
    For,
    Load,
    Local,
    Loops,
    Nest,
    Number,
    Role,
    Statement,
    Store,
    Way,
    When,
)
from glenside.ir.dtypes import REALS, RECORDS, STORED
from glenside.ir.operator import Keeps
from glenside.semantics.prime_field import MAX_EXPONENT, PrimeField, function_seed


class Plain(Printer):
    """Prints every loop as a serial `for`, and each nest as a function."""

    def _calls(self, nest: Nest) -> Iterator[str]:
        self.names, self.written, self.declared = {}, set(), set()
        lines = list(self._statements(nest.body, "    "))
        given = [b for b in self.names if b.role is not Role.SCRATCH]
        self.shared = self.arena.sharing(given)
        parameters = [f"{'' if b in self.written else 'const '}{self.parameter(b)}{self.names[b]}" for b in given]
        scratch = {name: b for b, name in self.names.items() if b not in given}
        taken = [
            f"    {self.memory(b)} *{name} = malloc({b.dims.product()} * sizeof *{name});\n    if (!{name}) return -1;"
            for name, b in scratch.items()
        ]
        freed = [f"    free({name});" for name in scratch]
        registers = [
            f"    {self.variable(b)} {b.name}[{b.dims.product()}];" for b in dict.fromkeys(_registers(nest.body))
        ]
        head = f"int NAME({', '.join(parameters) or 'void'})\n{{"
        text = "\n".join([head, *taken, *registers, *lines, *freed, "    return 0;", "}"])
        name = self.nests.setdefault(text, f"nest{len(self.nests) + 1}")
        places = [self._pointer_to(buffer, {}) for buffer in given]
        yield f"    if ((status = {name}({', '.join(places)}))) return status;"

    def _for(self, loop: For, indent: str) -> Iterator[str]:
        if loop.way is Way.MATRIX:
            yield f"{indent}{self._product(product_of(loop))};"
            return
        yield from self._loop(loop, indent, "0", str(loop.axis.size))

    def _called(self, function: str, product: MatrixProduct) -> str:
        """Returns a call that computes the sums of a tile."""
        self.written.add(product.sums)
        places = (product.sums, product.first), (product.a, product.of_rows), (product.b, product.of_columns)
        given = [" + ".join(self.address(*place)) for place in places]
        return f"{function}({', '.join(given)}, {product.rows}, {product.steps}, {int(product.adds)})"

    def variable(self, held: Buffer | Local) -> str:
        """Returns the C type of a variable or register."""
        return self.computed(held.dtype)

    def register(self, access: Load | Store) -> str:
        return f"{access.buffer.name}[{self.index(access.place)}]"

    def target(self, store: Store) -> str:
        if store.buffer.role is Role.REGISTER:
            return self.register(store)
        return super().target(store)


def _registers(body: tuple[Statement, ...]) -> Iterator[Buffer]:
    for statement in body:
        if isinstance(statement, For | When):
            yield from _registers(statement.body)
        elif isinstance(statement, Store) and statement.buffer.role is Role.REGISTER:
            yield statement.buffer


_RESIDUES = r"""
/* Residues modulo a prime, the representatives that are nearest to 0: products are below 2^42, and exact. */
extern __attribute__((visibility("hidden"))) double PRIME, PART, HALF;
extern __attribute__((visibility("hidden"))) int WHICH;
static inline double reduced(double x)
{
    double whole = x * PART + 0x1.8p52;
    return x - (whole - 0x1.8p52) * PRIME;
}
static inline double near_0(double x) { return x > HALF ? x - PRIME : x < -HALF ? x + PRIME : x; }
static inline double product(double a, double b) { return reduced(a * b); }
static inline double inverse(double a) /* of 0 it is 0 */
{
    double found = 1;
    for (int64_t e = (int64_t)PRIME - 2; e; e >>= 1) {
        if (e & 1) found = product(found, a);
        a = product(a, a);
    }
    return found;
}
static inline double of_signed(int64_t x) { return near_0((double)(x % (int64_t)PRIME)); }
static inline double of_unsigned(uint64_t x) { return near_0((double)(x % (uint64_t)PRIME)); }
/* What stands for a function of reals. */
static inline double scattered(double x, uint64_t seed)
{
    uint64_t key = ((uint64_t)(int64_t)x + seed) * 0x9E3779B97F4A7C15ull;
    key = ((key ^ key >> 32) * 0xD6E8FEB86659FD93ull) >> 42;
    return (double)(key * (uint64_t)PRIME >> 22) - HALF;
}
static inline double power(double a, double b, uint64_t seed) /* as PrimeField.power */
{
    if (!(fabs(b) <= MAX_EXPONENT)) return scattered(a + b * 0x1p22, seed);
    double found = 1, base = b < 0 ? inverse(a) : a;
    for (int64_t e = (int64_t)fabs(b); e; e >>= 1) {
        if (e & 1) found = product(found, base);
        base = product(base, base);
    }
    return found;
}
static inline double sign_of(double x) { return (double)((x > 0) - (x < 0)); }
""".replace("MAX_EXPONENT", str(MAX_EXPONENT))
_MODULO = """double PRIME, PART, HALF;
int WHICH;
void modulo(int which)
{
    static const double primes[] = {PRIMES};
    WHICH = which, PRIME = primes[which], PART = 1 / PRIME, HALF = (PRIME - 1) / 2;
}"""
_OPERATIONS = {
    "add": "near_0({} + {})",
    "subtract": "near_0({} - {})",
    "multiply": "product({}, {})",
    "divide": "product({}, inverse({}))",
    "negative": "(-{})",
    "abs": "fabs({})",
    "sign": "sign_of({})",
    "min": "fmin({}, {})",
    "max": "fmax({}, {})",
    "flushed": "{}",  # residues have no size
}
_REMAINDERS = {"mod": "mod floor", "rem": "mod truncate"}


class Residues(Plain):
    """Prints floats as residues of `LoopField`: float in memory, double in computations.

    `void modulo(int which)` selects the field, of two, for the next `run`.
    """

    def __init__(self, loops: Loops, fields: Sequence[PrimeField]) -> None:
        super().__init__(loops)
        self.fields = fields
        self.functions[_RESIDUES] = None
        self.places = {buffer: place * GROWTH for buffer, place in self.places.items()}

    def entries(self, given: str, steps: Sequence[str]) -> Iterator[str]:
        yield _MODULO.replace("PRIMES", ", ".join(f"{field.p}.0" for field in self.fields))
        yield from super().entries(given, steps)

    def _product(self, product: MatrixProduct) -> str:
        self.functions.setdefault(residues_function(product.parts))
        return self._called(f"residues_{product.parts}", product)

    def memory(self, buffer: Buffer) -> str:
        return "float" if buffer.dtype in REALS else super().memory(buffer)

    def computed(self, dtype: str) -> str:
        return "double" if dtype in REALS else super().computed(dtype)

    def loaded(self, element: str, buffer: Buffer) -> str:
        return f"(double){element}" if buffer.dtype in REALS else super().loaded(element, buffer)

    def kept(self, value: str, buffer: Buffer) -> str:
        return f"(float)({value})" if buffer.dtype in REALS else super().kept(value, buffer)

    def sorted_as(self, dtype: str) -> str:
        return "float32" if dtype in REALS else dtype

    def number(self, number: Number) -> str:
        if number.dtype not in REALS:
            return super().number(number)
        if number.value is None:
            return "(-HALF)"
        first, second = (int(field.constant(number.value, number.dtype)) for field in self.fields)
        return f"({first}.0)" if first == second else f"(WHICH ? {second}.0 : {first}.0)"

    def converted(self, formula: Convert) -> str:
        given, wanted, value = formula.formula.dtype, formula.dtype, self.formula(formula.formula)
        if given not in REALS and wanted not in REALS:
            return super().converted(formula)
        if given in REALS and wanted in REALS:
            return self._rounded(value, wanted)
        if formula.bits:
            value = f"scattered((double){value}, {_seed('bitcast')})"
        elif wanted in REALS:
            return self._rounded(f"of_{'signed' if RECORDS[given].signed else 'unsigned'}({value})", wanted)
        if wanted in REALS:
            return value
        return f"(uint8_t)({value} != 0)" if wanted == "bool" else self.wrapped(f"(int64_t)({value})", wanted)

    def applied(self, formula: Apply) -> str:
        name, whole = formula.primitive.name, formula.operands[-1].dtype not in REALS or formula.dtype == "bool"
        if whole and name != "select":
            return super().applied(formula)
        operands = [self.formula(operand) for operand in formula.operands]
        if name == "select":
            return "({} != 0 ? {} : {})".format(*operands)
        if name in _OPERATIONS:
            return _OPERATIONS[name].format(*operands)
        if name == "pow":
            return f"power({', '.join(operands)}, {_seed(name)})"
        if name in _REMAINDERS:
            return f"scattered({operands[0]} + {operands[1]} * 0x1p22, {_seed(_REMAINDERS[name])})"
        (operand,) = operands
        if Keeps.ZERO not in formula.primitive.keeps:
            return f"scattered({operand}, {_seed(name)})"
        return self._keeping_zero(name, operand)

    def _rounded(self, value: str, dtype: str) -> str:
        """Rounding to a storage-only dtype is a pseudo-random function, like any other function of reals."""
        return self._keeping_zero(f"cast {dtype}", value) if dtype in STORED else value

    def _keeping_zero(self, function: str, operand: str) -> str:
        name = function.replace(" ", "_")
        self.functions.setdefault(
            f"static inline double {name}_of(double x) {{ return x == 0 ? 0 : scattered(x, {_seed(function)}); }}"
        )
        return f"{name}_of({operand})"


GROWTH = 2
"""Factor on offsets in the arena: a float16 element takes the space of a float."""


def _seed(function: str) -> str:
    return f"{int(function_seed(function))}ull"


def residues(loops: Loops, fields: Sequence[PrimeField]) -> Source:
    """Returns serial C of the loops in which floats are residues, of the field that `modulo` selects.

    Raises BadInput.
    """
    return Residues(loops, fields).source()
