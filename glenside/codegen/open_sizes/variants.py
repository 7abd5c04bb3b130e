"""Several functions of one program with open sizes, each the fastest for some sizes, as one function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from glenside.codegen.open_sizes.callable import OpenCallable
from glenside.codegen.open_sizes.function import OpenFunction
from glenside.codegen.runtime.arguments import Kind
from glenside.ir.operand import Array


class OpenVariants(OpenCallable):
    """A compiled program with open sizes whose variant is chosen when it is called: `f(x, ..)`.

    functions  the variants, which have the same inputs, results and ranges
    choose     the number of the variant for given sizes
    """

    def __init__(self, functions: Sequence[OpenFunction], choose: Callable[[Mapping[str, int]], int]) -> None:
        self.functions, self.choose, self.first = functions, choose, functions[0]
        read = {*self.first.read}.union(*(one.read for one in functions))
        super().__init__(self.first.program, self.first.inputs, read, self.first.result_names)
        self.machine = self.first.machine

    def variant(self, sizes: Mapping[str, int]) -> OpenFunction:
        """Returns the function for given sizes."""
        return self.functions[self.choose(sizes)]

    @property
    def report(self) -> str:
        """Says for which sizes the function is, and how each variant was found, made and verified."""
        return "\n".join(f"Variant {n}: {one.report}" for n, one in enumerate(self.functions, 1))

    @property
    def source(self) -> str:
        """The C sources of the variants."""
        return "\n".join(one.source for one in self.functions)

    def __repr__(self) -> str:
        return f"{self.first!r} in {len(self.functions)} variants"

    def verify(self, **sizes: int) -> None:
        """Verifies the variant of given sizes there. Raises BadInput if it does not hold."""
        self.program.require_sizes(sizes)
        self.variant(sizes).verify(**sizes)

    def wrong(self) -> list[str]:
        """Returns how results of any variant differ from the interpreter's at the verified sizes."""
        return [said for one in self.functions for said in one.wrong()]

    def result_kinds(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        """Returns the dims and dtypes of the results at given sizes, by name."""
        return self.variant(sizes).result_kinds(sizes)

    def numbers_of_results(self) -> Sequence[int]:
        return self.first.numbers_of_results()

    def run_into(self, arrays: Mapping[str, Any], results: Mapping[str, Array], threads: int | None) -> None:
        self.variant(self.sizes_of(arrays)).run_into(arrays, results, threads)

    def is_in_place(self, name: str, result: str) -> bool:
        """True if a result may be stored in the memory of an input in all variants."""
        return all(one.is_in_place(name, result) for one in self.functions)

    def _ran(
        self,
        arrays: Mapping[str, Any],
        sizes: Mapping[str, int],
        out: Array | Sequence[Array] | None,
        threads: int | None,
    ) -> Any:
        return self.variant(sizes).called(arrays, sizes, out, threads)
