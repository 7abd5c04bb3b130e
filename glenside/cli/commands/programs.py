"""`glenside run` and `glenside check`: run and compare programs without optimizing them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import numpy as np
import typer

from glenside.cli.instructions import CODE
from glenside.cli.npu_runs import MACHINES
from glenside.cli.options import Html, JsonFile, Valued, command
from glenside.cli.output import OK, WRONG, json_report, status_line, writable
from glenside.ir.errors import BadInput
from glenside.ir.interrupts import INTERRUPTED
from glenside.ir.names import one_line, spelled_name

if TYPE_CHECKING:
    from glenside.check import CheckReport, GradientReport
    from glenside.ir.program import Program


@command
def run(
    source: Valued,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="Write the result to this file: .npy or .npz.")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="MACHINE",
            help="native, or a machine of `glenside compile`: as C. spu: between two local processes, with its cost. "
            "simulator or rtl: an npu program, with its cycles.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            help="For --on spu: the two-party protocol, mpc:semi2k by default. For an npu program: the npu it must be "
            "for.",
        ),
    ] = None,
    link: Annotated[
        str | None, typer.Option("--link", metavar="LINK", help="The link of two parties, lan by default.")
    ] = None,
    runs: Annotated[int | None, typer.Option("--runs", help="Timed runs with --on spu, 3 by default.")] = None,
    json_path: JsonFile = None,
    plot: Annotated[
        str | None,
        typer.Option("--plot", metavar="FILE", help="Write the timeline of an npu program: .png, .svg or .pdf."),
    ] = None,
    html: Html = None,
) -> None:
    """Run a program on arrays with the interpreter; as C; on SPU, with predicted and measured bytes, messages and
    seconds; or run an npu program, with predicted and measured cycles.
    """
    from glenside.builder.dropout import SEED
    from glenside.formats import ending
    from glenside.formats.sources import require_given
    from glenside.ir.operators.opaque import require_meaning
    from glenside.report.html_file import require_page
    from glenside.semantics.interpreter import evaluate

    writable(output, json_path, plot, html)
    if on in MACHINES:
        from glenside.cli.commands.npu import run_on_npu

        raise typer.Exit(run_on_npu(source, on, target, {"link": link, "runs": runs}, output, json_path, plot, html))
    if ending(source.source) in CODE:
        raise BadInput(f"{source.source} is a program of an npu, which runs --on simulator or --on rtl")
    if plot is not None:
        raise BadInput("--plot is for programs of an npu: give --on simulator or --on rtl too")
    if html is not None and on != "spu":
        raise BadInput("--html reports cycles or traffic of a machine: give --on simulator, --on rtl or --on spu too")
    require_page(html)
    of_machine = (("target", target), ("link", link), ("runs", runs), ("json", json_path))
    given = [name for name, value in of_machine if value is not None]
    if on != "spu" and given:
        raise BadInput(f"--{given[0]} is for programs that run on SPU: give --on spu too")
    load = source.loader()
    if on == "spu":
        from glenside.cli.commands.secure import run_in_spu

        value, names, status = run_in_spu(load, target, link, runs, source.seed, json_path, html)
        if output is not None:
            _write(value, names, output)
        raise typer.Exit(status)
    if on is not None:
        from glenside.cli.commands.native import run_compiled

        value, names = run_compiled(load, on, source.seed)
    else:
        program = load()
        require_meaning("a run", program.term)
        require_given(program)
        seed = {SEED.name: np.zeros((), np.uint32)}  # of dropouts that run: 0 unless given
        (value,) = evaluate([program.term], {**seed, **program.seeded_constants(source.seed).constants})
        names = program.result_names()
    if output is None:
        print(value)
    else:
        _write(value, names, output)


def _write(value: Any, names: Sequence[str], output: str) -> None:
    """Writes a result as .npy or .npz, whole or not at all. Raises BadInput."""
    from glenside.ir.files import write_array, write_arrays
    from glenside.ir.operand import arrays as arrays_of

    if Path(output).suffix == ".npz":
        write_arrays(output, _named(value, names))
    elif isinstance(value, tuple):
        count = len(arrays_of(value))
        raise BadInput(f"{output} holds one array, and the program gives {count}; give an .npz file")
    else:
        write_array(output, value)


def _named(value: Any, names: Sequence[str]) -> dict[str, Any]:
    """Returns the arrays of a value by the names that an ONNX file would give them."""
    found: dict[str, Any] = {}
    for name, item in zip(names, value if isinstance(value, tuple) else (value,), strict=True):
        inner = isinstance(item, tuple)
        found |= _named(item, [f"{name}_{i}" for i in range(len(item))]) if inner else {name: item}
    return found


@command
def check(
    source: Valued,
    other: Annotated[
        str | None, typer.Argument(metavar="[OTHER]", help="A program to compare with, in any format.")
    ] = None,
    wrt: Annotated[
        list[str] | None,
        typer.Option(
            "--wrt",
            metavar="TENSOR",
            help="Check that the other program is the gradient of this one with respect to these tensors, in order; by "
            "default the TENSORs of its results gradient.TENSOR.",
        ),
    ] = None,
    html: Html = None,
    json_path: JsonFile = None,
) -> None:
    """Check the types of a program, and print its type and the sizes of its products. With two programs, check that
    they are equal, layer by layer and as a whole, or that the other is the gradient of the first, tensor by tensor.
    """
    from glenside.analysis.layers import product_sizes
    from glenside.report.html_file import require_page

    writable(html)
    require_page(html)
    if html is not None and other is None:
        raise BadInput("--html tells how two programs compare: give the other one too")
    if wrt and other is None:
        raise BadInput("--wrt is for a program and its gradient: give the file of that too")
    with json_report(json_path) as content:
        program = source.loader()()
        content["program"] = program.name
        if other is not None:
            second = dataclasses.replace(source, source=other).loader()()
            by = wrt or _differentiated(program, second)
            content["other"] = second.name
            if by:
                _differentiate(program, second, by, source.seed, html, content)
            _compare(program, second, source.seed, html, content)
        program = program.as_written()
        sizes = {name: dataclasses.asdict(product_sizes(product)) for name, product in program.layers.items()}
        content |= {"type": str(program.term.type), "layers": sizes}
        print(f"{one_line(program.name)}: {program.term.type}")
        for name, own in sizes.items():
            print(f"  {one_line(name)}: {own['groups']} x {own['m']} x {own['k']} x {own['n']}")


def _differentiated(program: Program, other: Program) -> list[str]:
    """Returns each TENSOR of the other program's results gradient.TENSOR; empty unless all its new results are such."""
    known = {*program.tensors}
    own = {*program.result_names()}
    by = [name.removeprefix("gradient.") for name in other.result_names() if name not in own]
    named = {f"gradient.{name}" for name in by} <= {*other.result_names()}
    return by if named and known.issuperset(by) else []


def _like(program: Program, other: Program) -> list[str]:
    """Returns for each result of the other program the first unused float tensor of the program with its type.

    Leading results that have the types of the program's own results are skipped. Empty if any result has no match.
    """
    from glenside.ir.dtypes import FLOATS
    from glenside.ir.types import AccessType, TupleType

    own, results = (
        kind.items if isinstance(kind, TupleType) else (kind,) for kind in (program.term.type, other.term.type)
    )
    left = {name: tensor for name, tensor in program.tensors.items() if tensor.dtype in FLOATS}
    found = []
    for item in results[len(own) :] if results[: len(own)] == own else results:
        alike = (
            n for n, t in left.items() if isinstance(item, AccessType) and (t.dims, t.dtype) == (item.dims, item.dtype)
        )
        name = next(alike, None)
        if name is None:
            return []
        found.append(name)
        del left[name]
    return [spelled_name(name) for name in found]


def _write_page(path: str | None, title: str, report: CheckReport | GradientReport, seed: int) -> None:
    """Writes the verdicts of a check as a page, if `--html` is given. Raises BadInput."""
    if path is None:
        return
    from glenside.check import CheckReport
    from glenside.ir.files import write_text
    from glenside.report.check_page import check_document

    how = f"{report.how} ({report.seconds:.2f} s)"
    if isinstance(report, CheckReport):
        what, verdicts, result = "layer", report.layers, report.result
    else:
        what, verdicts, result = "gradient", report.gradients, report.value
    write_text(path, check_document(title, what, verdicts, result, how, {"seed": str(seed)}).html())


def _differentiate(
    program: Program, gradient: Program, wrt: Sequence[str], seed: int, html: str | None, content: dict[str, Any]
) -> NoReturn:
    """Checks a gradient exactly, prints the report and exits with its status. Raises BadInput."""
    from glenside.check import check_gradient

    given, gradient = _given(program, gradient)
    with status_line("check") as show:
        report = check_gradient(
            program,
            gradient,
            wrt,
            given={name: array for name, array in given.items() if name not in wrt},
            seed=seed,
            progress=lambda done, total: show(f"check: {done} of {total}"),
        )
    print(report)
    content |= {"ok": report.ok, **dataclasses.asdict(report)}
    title = f"{one_line(gradient.name)} as the gradient of {one_line(program.name)}"
    _write_page(html, title, report, seed)
    raise typer.Exit(INTERRUPTED if report.stopped == "interrupted" else OK if report.ok else WRONG)


def _compare(first: Program, second: Program, seed: int, html: str | None, content: dict[str, Any]) -> NoReturn:
    """Compares two programs exactly, prints the report and exits with its status. Raises BadInput."""
    from glenside.check import check as compare_exactly
    from glenside.check.rounded_numbers import with_equal_numbers

    for one, two in ((first, second), (second, first)):
        missing = [name for name in one.inputs if name not in two.tensors]
        if missing:
            names = ", ".join(map(spelled_name, missing))
            raise BadInput(f"two programs are compared on the same inputs, and {one_line(two.name)} has no {names}")
    given, second = _given(first, second)
    first, second = with_equal_numbers(first, second, given)
    given = {name: array for name, array in given.items() if name in first.tensors or name in second.tensors}
    moved = [n for n, layer in second.layers.items() if n in first.layers and first.layers[n].type != layer.type]
    second = dataclasses.replace(second, layers={n: t for n, t in second.layers.items() if n not in moved})
    with status_line("check") as show:
        report = compare_exactly(
            first, second, seed=seed, given=given, progress=lambda done, total: show(f"check: {done} of {total}")
        )
    print(report)
    content |= {"ok": report.ok, **dataclasses.asdict(report)}
    if moved:
        print(f"Of {len(moved)} layers the types differ, as in other layouts: they are compared by the result alone.")
    if first.term.type != second.term.type and (by := _like(first, second)):
        print(
            f"Its results are like tensors of the first: {' '.join(f'--wrt {n}' for n in by)} checks it as a gradient."
        )
    _write_page(html, f"{one_line(first.name)} beside {one_line(second.name)}", report, seed)
    raise typer.Exit(INTERRUPTED if report.stopped == "interrupted" else OK if report.ok else WRONG)


def _given(first: Program, second: Program) -> tuple[dict[str, Any], Program]:
    """Returns the constants that differ between two programs, by name, and the second program, see `_apart`."""
    alike, second = _apart(first, second)
    values = {**first.constants, **second.constants}
    return {name: array for name, array in values.items() if name not in alike}, second


def _apart(first: Program, second: Program) -> tuple[set[str], Program]:
    """Returns the names of constants with equal values, and the second program with all its other constants renamed.

    The check may draw any numbers for equal constants. Constants that differ keep their values: after constant folding
    the programs are equal only for these values.
    """
    from glenside.ir.term import Term, build, rebuild_all
    from glenside.ir.types import Tensor

    both = first.constants_declared.keys() & second.constants_declared.keys()
    one, two = first.constants, second.constants
    alike = {n for n in both if (n in one) == (n in two) and (n not in one or np.array_equal(one[n], two[n]))}
    names = {name: f"{name} of the second program" for name in second.constants_declared if name not in alike}

    def renamed(term: Term, _: tuple[Term, ...]) -> Term | None:
        tensor = term.attributes[0] if term.attributes else None
        if not isinstance(tensor, Tensor) or tensor.name not in names:
            return None
        return build("access-tensor", dataclasses.replace(tensor, name=names[tensor.name]))

    constants = {names.get(name, name): array for name, array in second.constants.items()}
    return alike, second.with_roots(rebuild_all(second.roots, renamed), constants=constants)
