"""The command line: flags, files and exit status; everything else is the library's."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glenside import __version__
from glenside.commands.sweep import sweep
from glenside.ir.errors import BadInput, GlensideError
from glenside.sources import limits_of, loader, pair

if TYPE_CHECKING:
    from glenside.ir.program import Program
    from glenside.pipeline import Event, Listener, Result
    from glenside.target import Target

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Find the equal program that uses a machine best, and check that it is equal.",
)

UNMAPPED, BAD_INPUT, INTERRUPTED = 1, 2, 130
STAGES = ("typed", "egraph", "extracted", "report")

Source = Annotated[str, typer.Argument(help="A built-in model (see `glenside models`) or a .glenside file.")]
Shapes = Annotated[str | None, typer.Option("--shapes", metavar="FILE.json", help="Shapes of tensors by name.")]
Shape = Annotated[list[str] | None, typer.Option("--shape", metavar="NAME=1,3,32,32", help="The shape of one tensor.")]
Weights = Annotated[str | None, typer.Option("--weights", metavar="W.npz", help="Values of constants.")]
Output = Annotated[str | None, typer.Option("-o", "--output", metavar="FILE", help="Where the result goes.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Nodes = Annotated[int, typer.Option("--node-limit", help="Most e-nodes.")]
Seconds = Annotated[float, typer.Option("--time-limit", help="Most seconds of search.")]
Iterations = Annotated[int, typer.Option("--iter-limit", help="Most iterations.")]
Memory = Annotated[str, typer.Option("--memory-limit", help="Most memory of the search, such as 500MB or 2GB.")]
Seed = Annotated[int, typer.Option("--seed", help="Of random weights and of the check.")]
Parameters = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter of a model.")]
TargetName = Annotated[str | None, typer.Option("--target", help="Such as systolic-array:16x16.")]


@app.callback(invoke_without_command=True)
def _options(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(f"glenside {__version__}")
        raise typer.Exit


@app.command()
def tensorize(
    source: Source,
    array: Annotated[str | None, typer.Option("--array", metavar="RxC", help="The array, such as 64x64.")] = None,
    target: TargetName = None,
    json_path: Annotated[str | None, typer.Option("--json", metavar="FILE", help="The report; - is stdout.")] = None,
    shapes: Shapes = None,
    shape: Shape = None,
    weights: Weights = None,
    output: Output = None,
    blocking: Annotated[str, typer.Option("--blocking", help="How products are cut: loops or slices.")] = "loops",
    parameters: Parameters = None,
    node_limit: Nodes = 2_000_000,
    time_limit: Seconds = 120.0,
    iter_limit: Iterations = 1_000,
    memory_limit: Memory = "8GB",
    seed: Seed = 0,
    no_check: Annotated[bool, typer.Option("--no-check", help="Leave out the check.")] = False,
) -> None:
    """Map the products of a program onto an array and print one row for each."""
    machine = _target(array, target)
    writable(json_path, output)
    limits = limits_of(node_limit, time_limit, iter_limit, memory_limit)
    load = loader(source, shapes, shape, weights, parameters, seed)
    result = _optimize(load, machine, limits, blocking, seed, verify=not no_check)
    _save(result.program, output)
    if json_path is not None:
        _write_json(result.report.as_dict(), json_path)
    if json_path != "-":
        from glenside.table import print_report

        print_report(result.report)
    raise typer.Exit(_status(result, checked=not no_check))


@app.command()
def optimize(
    source: Source,
    target: TargetName = None,
    array: Annotated[str | None, typer.Option("--array", metavar="RxC", help="The same as systolic-array:RxC.")] = None,
    emit: Annotated[str, typer.Option("--emit", help="typed, egraph, extracted or report.")] = "extracted",
    shapes: Shapes = None,
    shape: Shape = None,
    weights: Weights = None,
    output: Output = None,
    parameters: Parameters = None,
    node_limit: Nodes = 2_000_000,
    time_limit: Seconds = 120.0,
    iter_limit: Iterations = 1_000,
    memory_limit: Memory = "8GB",
    seed: Seed = 0,
) -> None:
    """Optimize a program and print one stage of the pipeline."""
    if emit not in STAGES:
        raise BadInput(f"--emit must be one of {', '.join(STAGES)}, got {emit!r}")
    machine = _target(array, target)
    writable(output)
    limits = limits_of(node_limit, time_limit, iter_limit, memory_limit)
    load = loader(source, shapes, shape, weights, parameters, seed)
    if emit == "typed":
        _print_or_write(typed_text(load()), output)
        return
    result = _optimize(load, machine, limits, "loops", seed, verify=emit != "egraph")
    if emit == "report":
        _write_json(result.report.as_dict(), output or "-")
    elif emit == "egraph":
        _emit_egraph(result, output)
    elif output is None:
        print(str(result.program), end="")
    else:
        _save(result.program, output)
    raise typer.Exit(_status(result, checked=emit != "egraph"))


@app.command()
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

    writable(output)
    arrays = {name: read_array(path) for name, path in (pair(text, "--input") for text in inputs or ())}
    dtypes = {name: array.dtype.name for name, array in arrays.items()}
    given = {name: ",".join(map(str, array.shape)) for name, array in arrays.items()}
    more = [f"{name}={dims}" for name, dims in given.items()] if Path(source).exists() else []
    program = loader(source, shapes, [*(shape or ()), *more], weights, parameters, seed, dtypes)()
    values = {**program.seeded_constants(seed).constants, **arrays}
    (value,) = evaluate([program.term], values)
    if output is None:
        print(value)
    elif isinstance(value, tuple):
        raise BadInput(f"{output} holds one array, and the program gives a tuple of {len(value)}")
    else:
        write_array(output, value)


@app.command()
def check(source: Source, shapes: Shapes = None, shape: Shape = None, parameters: Parameters = None) -> None:
    """Check the types of a program; print its type, and the sizes of its products."""
    from glenside.mapping import product_sizes

    program = loader(source, shapes, shape, None, parameters, 0)()
    print(f"{program.name}: {program.term.type}")
    for name, product in program.layers.items():
        sizes = product_sizes(product)
        print(f"  {name}: {sizes.groups} x {sizes.m} x {sizes.k} x {sizes.n}")


@app.command()
def models(as_json: Json = False) -> None:
    """List the built-in models."""
    from glenside.models import models as known

    _listing([{"name": name, "about": line} for name, line in known().items()], as_json)


@app.command()
def ops(as_json: Json = False) -> None:
    """List the operators and compute types."""
    import glenside.ir.operators
    from glenside.ir.operator import COMPUTES, OPERATORS

    assert glenside.ir.operators
    rows = [
        {"name": o.name, "arguments": " ".join(f.name for f in o.fields), "about": _line(o.doc)}
        for o in OPERATORS.values()
    ]
    rows += [
        {"name": f"compute {c.name}", "arguments": " ".join(f.name for f in c.parameters), "about": _line(c.doc)}
        for c in COMPUTES.values()
    ]
    _listing(sorted(rows, key=lambda row: row["name"]), as_json)


@app.command()
def rules(as_json: Json = False) -> None:
    """List the rewrite rules, by family."""
    from rewrites import RULES

    found = sorted(RULES.values(), key=lambda r: (r.family, r.name))
    _listing([{"name": r.name, "family": r.family, "about": r.equation} for r in found], as_json)


@app.command()
def targets(as_json: Json = False) -> None:
    """List the targets."""
    from glenside.targets import TARGETS

    _listing([{"name": usage, "about": _line(doc)} for usage, doc, _ in TARGETS.values()], as_json)


app.command()(sweep)


def _line(doc: str) -> str:
    return " ".join(doc.split("\n\n")[0].split())


def _listing(rows: list[dict[str, str]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    from rich.table import Table

    from glenside.table import console

    table = Table(box=None, show_header=False, pad_edge=False)
    for column in rows[0] if rows else ():
        table.add_column(column, overflow="fold", no_wrap=column == "name")
    for row in rows:
        table.add_row(*row.values())
    console().print(table, markup=False)


def _target(array: str | None, target: str | None) -> Target:
    from glenside.targets import parse_target

    if (array is None) == (target is None):
        raise BadInput("give the machine with --array RxC, such as --array 64x64, or with --target, and not with both")
    return parse_target(target if target is not None else f"systolic-array:{array}")


def _optimize(
    load: Callable[[], Program], machine: Target, limits: Any, blocking: str, seed: int, verify: bool
) -> Result:
    from glenside.egraph.search import Worker
    from glenside.pipeline import optimize as run_pipeline

    worker = Worker()  # it starts while the program is loaded
    try:
        started = time.perf_counter()
        program = load()
        seconds = time.perf_counter() - started
        with _progress() as listener:
            return run_pipeline(
                program,
                machine,
                limits=limits,
                blocking=blocking,
                seed=seed,
                verify=verify,
                worker=worker,
                listener=listener,
                load_seconds=seconds,
            )
    finally:
        worker.end()


@contextmanager
def _progress() -> Iterator[Listener]:
    """A line on standard error that says what is being done, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:

        def show(event: Event) -> None:
            share = "" if event.fraction is None else f" ({100 * event.fraction:.0f} %)"
            status.update(f"{event.stage}: {event.detail}{share}")

        yield show


def _status(result: Result, checked: bool) -> int:
    if result.stopped == "interrupted" or result.interrupted:
        return INTERRUPTED
    if not all(row.mapped for row in result.report.layers):
        return UNMAPPED
    return 0 if result.report.ok or not checked else UNMAPPED


def writable(*paths: str | None) -> None:
    """Refuse an output path before hours of work. Raises BadInput."""
    for path in paths:
        if path is None or path == "-":
            continue
        folder = Path(path).parent
        if Path(path).is_dir():
            raise BadInput(f"cannot write {path}: it is a folder")
        if not folder.is_dir():
            raise BadInput(f"cannot write {path}: there is no folder {folder}")
        if not os.access(Path(path) if Path(path).exists() else folder, os.W_OK):
            raise BadInput(f"cannot write {path}: permission denied")


def _save(program: Program, path: str | None) -> None:
    if path is None:
        return
    if path == "-":
        print(str(program), end="")
        return
    from glenside.ir.files import save

    save(program, path)


def _write_json(content: Any, path: str) -> None:
    text = json.dumps(content, indent=2) + "\n"
    _print_or_write(text, None if path == "-" else path)


def _print_or_write(text: str, path: str | None) -> None:
    if path is None or path == "-":
        print(text, end="" if text.endswith("\n") else "\n")
        return
    from glenside.ir.files import write_text

    write_text(path, text)


def typed_text(program: Program) -> str:
    """The program, and for each layer and the result its type, as comments."""
    lines = [f"; {name}: {term.type}" for name, term in program.layers.items()]
    return "\n".join([*lines, f"; result: {program.term.type}", str(program)])


def _emit_egraph(result: Result, output: str | None) -> None:
    from glenside.egraph.draw import egraph_dot, write_egraph

    if output is None:
        print(egraph_dot(result.egraph, result.choice), end="")
        return
    left_out = write_egraph(result.egraph, output, result.choice)
    if left_out:
        print(left_out, file=sys.stderr)


def main() -> None:
    """The entry point: bad input is one sentence and status 2, Ctrl-C is 130, a closed pipe is no error."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except GlensideError as error:
        _fail(str(error))
    except typer.Exit as exit_:
        sys.exit(exit_.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if type(error).__module__.split(".")[0] not in ("click", "typer") or not hasattr(error, "format_message"):
            raise
        _fail(error.format_message())


def _fail(message: str) -> None:
    print(f"glenside: error: {message}", file=sys.stderr)
    sys.exit(BAD_INPUT)


if __name__ == "__main__":
    main()
