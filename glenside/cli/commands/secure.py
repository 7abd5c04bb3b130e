"""`glenside run --on spu`: runs two parties as two local processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from glenside.cli.output import WRONG, print_or_write, status_line
from glenside.ir.bounds import whole
from glenside.ir.errors import BadInput
from glenside.ir.names import one_line, spelled_name

if TYPE_CHECKING:
    from glenside.execution.spu.comparison import Comparison
    from glenside.ir.operand import Array
    from glenside.ir.program import Program
    from glenside.ir.types import Type
    from glenside.targets.mpc.target import MPC

MACHINE = "spu"
_MOST_RUNS = 1_000


def run_in_spu(
    load: Callable[[], Program],
    target: str | None,
    link: str | None,
    runs: int | None,
    seed: int,
    json_path: str | None,
    html: str | None = None,
) -> tuple[Any, Sequence[str], int]:
    """Runs a program between two parties, prints its cost, and returns its value, result names and exit status.

    Raises BadInput.
    """
    from glenside.execution.spu.comparison import RUNS, compare
    from glenside.execution.spu.session import interpreter
    from glenside.ir.operators.opaque import require_meaning

    parties = parties_of("mpc" if target is None else target, link=link)
    count = RUNS if runs is None else whole("the number of --runs", runs, 1, _MOST_RUNS)
    interpreter()
    program = load()
    require_meaning("a run", program.term)
    with status_line("SPU: compiling") as show:
        found = compare(program, parties, seed, count, lambda done, of: show(f"SPU: {done} of {of} runs"))
    if json_path != "-":
        _print(program, found, parties, count, seed)
    if json_path is not None:
        said = {
            "program": program.name,
            "target": parties.name,
            "link": asdict(parties.link),
            "runs": count,
            "seed": seed,
        }
        print_or_write(json.dumps({**said, **found.as_dict()}, indent=2) + "\n", json_path)
    if html is not None:
        from glenside.report.measured_pages import spu_document

        facts = {"program": one_line(program.name), "target": parties.name, "link": str(parties.link)}
        facts |= {"runs": str(count), "seed": str(seed)}
        words = _sentences(found, parties, count, seed)
        print_or_write(spu_document(program.name, parties.name, found, words, facts).html(), html)
    return _nested(program.term.type, iter(found.values)), program.result_names(), 0 if found.agrees else WRONG


def parties_of(text: str, **options: Any) -> MPC:
    """Returns the two-party target that the text describes. Raises BadInput."""
    from glenside.targets import parse_target

    given = {name: value for name, value in options.items() if value is not None}
    target = parse_target("mpc:semi2k" if text == "mpc" else text, **given)
    if target.machine != MACHINE:
        raise BadInput(f"{target.name} is not run on {MACHINE}: give a target of two parties, such as mpc:semi2k")
    return cast("MPC", target)


def _print(program: Program, found: Comparison, target: MPC, runs: int, seed: int) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from glenside.cli.table import console
    from glenside.report.measured_pages import parties_table

    table = Table(title=Text(f"{one_line(program.name)} on {target.name}"), title_justify="left", box=box.SIMPLE)
    table.pad_edge = False
    content = parties_table(found)
    for column in content.columns:
        heading = "measured" if column.name.endswith(" measured") else column.name
        table.add_column(heading, justify="left" if column.words else "right", overflow="fold")
    for cells in content.rows():
        table.add_row(*cells)
    table.add_section()
    table.add_row(*(column.total for column in content.columns))
    out = console()
    out.print(table)
    for line in _sentences(found, target, runs, seed):
        out.print(line, markup=False)


def _sentences(found: Comparison, target: MPC, runs: int, seed: int) -> Iterator[str]:
    yield (
        f"The link: {target.link}, which a proxy between two processes of this machine imposes; each computes on one "
        f"thread. Seconds are the median of {runs} runs, after one that is not timed."
    )
    yield (
        "Layers were run each by itself, as programs of their own that wait to be started; what is between them is the "
        "rest of the whole. Bytes and messages are of one party; sharing the inputs is not counted."
    )
    if found.drawn:
        names = ", ".join(map(spelled_name, found.drawn))
        yield f"Nobody gave values for {names}: they are random, of seed {seed}."
    yield from found.remarks
    verdict = "agrees with" if found.agrees else "differs from"
    yield (
        f"The result {verdict} the interpreter's: {found.error:.2g} apart at most, of numbers up to "
        f"{found.largest:.3g}; {found.allowed:.2g} is taken for fixed point of {target.bits} bits."
    )


def _nested(type_: Type, arrays: Iterator[Array]) -> Any:
    from glenside.ir.types import TupleType

    return tuple(_nested(item, arrays) for item in type_.items) if isinstance(type_, TupleType) else next(arrays)
