"""`glenside run` and `glenside check`: programs as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from glenside.cli.options import Declared, Valued, command
from glenside.cli.output import writable
from glenside.ir.errors import BadInput
from glenside.ir.names import one_line


@command
def run(
    source: Valued,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", metavar="NAME=FILE.npy", help="The array of an input.")
    ] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="Where the result goes; .npy or .npz.")
    ] = None,
) -> None:
    """Run a program on arrays with the interpreter."""
    from glenside.check.comparison import arrays as arrays_of
    from glenside.formats.sources import pair
    from glenside.ir.files import read_array, write_array, write_arrays
    from glenside.ir.operators.opaque import require_meaning
    from glenside.semantics.interpreter import evaluate

    writable(output)
    arrays = {name: read_array(path) for name, path in (pair(text, "--input") for text in inputs or ())}
    program = source.loader(inputs=arrays)()
    require_meaning("a run", program.term)
    (value,) = evaluate([program.term], {**program.seeded_constants(source.seed).constants, **arrays})
    if output is None:
        print(value)
    elif Path(output).suffix == ".npz":
        write_arrays(output, _named(value))
    elif isinstance(value, tuple):
        count = len(arrays_of(value))
        raise BadInput(f"{output} holds one array, and the program gives {count}; give an .npz file")
    else:
        write_array(output, value)


def _named(value: Any, name: str = "output") -> dict[str, Any]:
    """The arrays of a value under the names that an ONNX file gives them: output, or output_0, output_1 .."""
    if not isinstance(value, tuple):
        return {name: value}
    return {n: array for i, item in enumerate(value) for n, array in _named(item, f"{name}_{i}").items()}


@command
def check(source: Declared) -> None:
    """Check the types of a program; print its type, and the sizes of its products."""
    from glenside.analysis.layers import product_sizes

    program = source.loader()().as_written()
    print(f"{one_line(program.name)}: {program.term.type}")
    for name, product in program.layers.items():
        sizes = product_sizes(product)
        print(f"  {one_line(name)}: {sizes.groups} x {sizes.m} x {sizes.k} x {sizes.n}")
