"""Several functions of one program with open sizes, each the fastest for some sizes, as one function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from glenside.codegen.open_sizes.function import OpenFunction
from glenside.codegen.runtime.arguments import Kind, all_arrays
from glenside.ir.operand import Array
from glenside.ir.torch_tensors import as_tensors, is_tensor


class OpenVariants:
    """A compiled program with open sizes whose variant is chosen when it is called: `f(x, ..)`.

    functions  the variants, which have the same inputs, results and ranges
    choose     the number of the variant for given sizes
    """

    def __init__(self, functions: Sequence[OpenFunction], choose: Callable[[Mapping[str, int]], int]) -> None:
        self.functions, self.choose = functions, choose
        self.first = functions[0]
        self.ranges, self.program, self.name, self.machine = (
            self.first.ranges,
            self.first.program,
            self.first.name,
            self.first.machine,
        )

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

    def __call__(
        self,
        /,
        *arrays: Array | Mapping[str, Array],
        out: Array | Sequence[Array] | None = None,
        threads: int | None = None,
        **named: Array,
    ) -> Any:
        """Runs the variant for the sizes of the arrays. Raises BadInput."""
        given = self.first.named(arrays, named)
        sizes = self.first.sizes_of(given)
        found = self.variant(sizes).called(given, sizes, out, threads)
        return as_tensors(found) if any(map(is_tensor, all_arrays(arrays, named))) and out is None else found

    def verify(self, **sizes: int) -> None:
        """Verifies the variant of given sizes there. Raises BadInput if it does not hold."""
        self.first.program.require_sizes(sizes)
        self.variant(sizes).verify(**sizes)

    def wrong(self) -> list[str]:
        """Returns how results of any variant differ from the interpreter's at the verified sizes."""
        return [said for one in self.functions for said in one.wrong()]

    def sizes_of(self, arrays: Mapping[str, Any]) -> dict[str, int]:
        """Returns the open sizes of arrays of inputs, by name. Raises BadInput."""
        return self.first.sizes_of(arrays)

    def least_sizes(self) -> dict[str, int]:
        """Returns the least sizes of the ranges."""
        return self.first.least_sizes()

    def greatest_sizes(self) -> dict[str, int]:
        """Returns the greatest sizes of the ranges."""
        return self.first.greatest_sizes()

    def input_kinds(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        """Returns the dims and dtypes of the inputs at given sizes, by name."""
        return self.first.input_kinds(sizes)

    def result_kinds(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        """Returns the dims and dtypes of the results at given sizes, by name."""
        return self.variant(sizes).result_kinds(sizes)

    def run_into(self, arrays: Mapping[str, Any], results: Mapping[str, Array], threads: int | None) -> None:
        """Runs the program on arrays by name, and stores all results in arrays by name."""
        self.variant(self.sizes_of(arrays)).run_into(arrays, results, threads)

    def is_in_place(self, name: str, result: str) -> bool:
        """True if a result may be stored in the memory of an input in all variants."""
        return all(one.is_in_place(name, result) for one in self.functions)
