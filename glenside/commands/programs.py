"""`glenside run` and `glenside check`: programs as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glenside.commands.options import Output, Parameters, Seed, Shape, Shapes, Source, Weights
from glenside.commands.output import writable
from glenside.ir.errors import BadInput
from glenside.sources import loader, pair


def run(
    source: Source,
    inputs: Annotated[list[str] | None, typer.Option("--input", metavar="NAME=FILE.npy", help="An array.")] = None,
    shapes: Shapes = None,
    shape: Shape = None,
    weights: Weights = None,
    output: Output = None,
    parameters: Parameters = None,
    seed: Seed = 0,
) -> None:
    """Run a program on arrays with the interpreter."""
    from glenside.ir.files import read_array, write_array
    from glenside.ir.interpreter import evaluate
    from glenside.ir.operators.opaque import require_meaning

    writable(output)
    arrays = {name: read_array(path) for name, path in (pair(text, "--input") for text in inputs or ())}
    dtypes = {name: array.dtype.name for name, array in arrays.items()}
    given = {name: ",".join(map(str, array.shape)) for name, array in arrays.items()}
    more = [f"{name}={dims}" for name, dims in given.items()] if Path(source).exists() else []
    program = loader(source, shapes, [*(shape or ()), *more], weights, parameters, seed, dtypes)()
    require_meaning("a run", program.term)
    values = {**program.seeded_constants(seed).constants, **arrays}
    (value,) = evaluate([program.term], values)
    if output is None:
        print(value)
    elif isinstance(value, tuple):
        raise BadInput(f"{output} holds one array, and the program gives a tuple of {len(value)}")
    else:
        write_array(output, value)


def check(source: Source, shapes: Shapes = None, shape: Shape = None, parameters: Parameters = None) -> None:
    """Check the types of a program; print its type, and the sizes of its products."""
    from glenside.mapping import product_sizes

    program = loader(source, shapes, shape, None, parameters, 0)()
    print(f"{program.name}: {program.term.type}")
    for name, product in program.layers.items():
        sizes = product_sizes(product)
        print(f"  {name}: {sizes.groups} x {sizes.m} x {sizes.k} x {sizes.n}")
