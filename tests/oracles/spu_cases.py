"""Lists programs that run in SPU on secrets, whose values and traffic are compared with predictions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import spu_simulation
from spu_simulation import Job

import glenside as gl
from glenside.ir.operand import Array, arrays
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor
from glenside.targets.mpc.semi2k import FRACTION_BITS, Semi2k
from glenside.targets.mpc.traffic import program_traffic, total

SUBSETS = [(), ("x",), ("w",), ("x", "w")]


BYTES = ("bytes",)


_UNITS = 8


@dataclass
class Cases:
    """Programs to run on secrets, with values, names of public ones, the field, and the allowed error. The error is
    relative to the largest expected value, plus a few units in the last place.

    An error is of the largest value that is to come out, beside a few units of the last place.
    """

    seed: int
    kept: list[tuple[str, Program, dict[str, Array], frozenset[str], int, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def add(
        self,
        name: str,
        what: Term | Program,
        public: Collection[str] = (),
        bits: int = 64,
        values: Mapping[str, Array] | None = None,
        error: float | None = None,
    ) -> None:
        program = what if isinstance(what, Program) else Program(what)
        given = {**program.constants, **(values or {})}
        drawn = {n: given[n] if n in given else self._value(t) for n, t in program.tensors.items()}
        allowed = {32: 0.05, 64: 1e-3, 128: 1e-4}[bits] if error is None else error
        self.kept.append(
            (f"{name} of {bits} bits, public {[*public]}", program, drawn, frozenset(public), bits, allowed)
        )

    def _value(self, tensor: Tensor) -> Array:
        if tensor.dtype.startswith("int"):
            return self.random.integers(-9, 10, tensor.dims).astype(tensor.dtype)
        return (self.random.standard_normal(tensor.dims) / 2).astype(tensor.dtype)

    def failures(self) -> list[str]:
        """Returns the differences between SPU and predictions, in results or traffic."""
        jobs = [
            Job(gl.export_jax(p), [values[n] for n in p.tensors], [n not in public for n in p.tensors], bits)
            for _, p, values, public, bits, _ in self.kept
        ]
        found = []
        for (name, p, values, public, bits, error), outcome in zip(self.kept, spu_simulation.run(jobs), strict=True):
            sent = total(program_traffic(p, public, protocol=Semi2k(bits)))
            if sent is None or (sent.bytes, sent.messages) != (outcome.bytes, outcome.messages):
                found.append(f"{name}: {sent}, SPU {outcome.bytes} bytes in {outcome.messages} messages")
            wanted = arrays(gl.evaluate([p.term], values)[0])
            for want, got in zip(wanted, outcome.values, strict=True):
                worst, largest = _error(want, got), float(np.max(np.abs(want.astype(float)), initial=0))
                if not worst <= error * largest + _UNITS * 2.0 ** -FRACTION_BITS[bits]:
                    found.append(f"{name}: values up to {largest} wrong by {worst}")
        return found


def _error(want: Array, got: Array) -> float:
    assert want.shape == got.shape
    return float(np.max(np.abs(want.astype(float) - got.astype(float)), initial=0))


def tensor(name: str, *dims: int, dtype: str = "float32", constant: bool = False) -> Term:
    return build("access-tensor", Tensor(name, Dims(dims), dtype, constant))


def at(a: Term, split: int) -> Term:
    return build("access", a, split)


def matmul(m: int, k: int, n: int, *groups: int, dtype: str = "float32") -> Term:
    shared = len(groups)
    a, b = (
        at(tensor("x", *groups, m, k, dtype=dtype), shared + 1),
        at(tensor("w", *groups, n, k, dtype=dtype), shared + 1),
    )
    return build("compute", "dot-product", build("access-product", a, b, shared))


def fold(kind: str, a: Term, b: Term) -> Term:
    """Folds whole tensors of the same dims."""
    rank = a.access.rank
    return build("compute", kind, build("access-product", at(a, rank), at(b, rank), rank))
