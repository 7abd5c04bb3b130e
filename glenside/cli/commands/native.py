"""`glenside compile`: writes programs as C; and compiled runs for other commands."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glenside.cli import completion
from glenside.cli.c_files import read_back, require_c_file, require_here
from glenside.cli.options import Bounds, Compilable, JsonFile, Valued, command
from glenside.cli.output import FAILED, OK, WRONG, json_report, status_line, writable
from glenside.cli.table import print_passes
from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.interrupts import INTERRUPTED, answered, finishing, stopped, unless_stopped, waited_for
from glenside.ir.names import one_line, suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from glenside.codegen.c_library.export import Library
    from glenside.codegen.loop_ir.ir import Loops
    from glenside.codegen.processor.model import Machine
    from glenside.codegen.runtime.compiled_function import Lowered
    from glenside.ir.program import Program
    from glenside.report.result import Result
    from glenside.targets.base import Target

_MACHINES = (
    "native, amx, avx512bf16, avx512vnni, avx512, avxvnni, avx2, neon, generic, a .toml file like one, or plain for "
    "plain loops"
)
MachineName = Annotated[
    str | None,
    typer.Option("--machine", help=f"{_MACHINES}. By default that of --target, else native."),
]
Chosen = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="The target to optimize for first, such as cpu:8MB; none: compile without optimization. By default cpu, "
        "or none if cpu refuses the program.",
        autocompletion=completion.targets,
    ),
]


@command
def compile(
    source: Compilable,
    bounds: Bounds,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="NAME.c",
            help="The C file to write; NAME.h and NAME.weights go beside it. For a .gguf file or a checkpoint also a "
            "folder, for a decoder that writes tokens: main.c, decoder.c, decoder.h, decoder.weights.",
        ),
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(
            "--machine",
            metavar="NAME[,NAME..]",
            help=f"{_MACHINES}; of several the program picks the best when it starts. By default that of --target, "
            "else native.",
        ),
    ] = None,
    target: Chosen = None,
    emit: Annotated[
        str,
        typer.Option("--emit", help="c; loops: the loop nests as text; or passes: a table of passes and their times."),
    ] = "c",
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="PASS", help="With --emit loops: print the loops after this pass."),
    ] = None,
    without: Annotated[
        str | None,
        typer.Option("--without", metavar="PASS[,PASS..]", help="Leave out loop passes, to measure their effect."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Run the compiled program and check it exactly before writing it.")
    ] = False,
    json_path: JsonFile = None,
) -> None:
    """Write a program as C11 with POSIX threads: NAME.c, NAME.h and NAME.weights; no library but libc is needed."""
    from glenside.cli.commands.native_decoder import compile_decoder, is_decoder
    from glenside.formats.sources import are_open

    left_out = tuple(without.split(",")) if without else ()
    _require_emitted(emit, after, left_out, output)
    if output is not None and is_decoder(source.source, output):
        refused = emit != "c" or after or left_out or check or target not in (None, "none")
        compile_decoder(source, output, machine, bool(refused), json_path)
        return
    if are_open(source.dims):
        from glenside.cli.commands.native_open import compile_open

        compile_open(source, output, machine, target, bool(emit != "c" or after or left_out), check, json_path)
        return
    machines, wanted = machines_for(machine, target)
    writable(output)
    if emit != "c" and len(machines) > 1:
        raise BadInput(f"{emit} are of one machine, got {machine}")
    if machines[0] is None and (after or left_out or emit == "passes"):
        raise BadInput("no pass runs over plain loops: choose another --machine")
    if emit == "c":
        require_c_file(output, machines)
    if check:
        require_here(machines)
    made = _Made(machines, emit, output, check, after, left_out)
    with json_report(json_path) as content:
        found = prepared(source, machines[0], wanted, bounds, made.put, by_default=target is None)
        try:
            made.put(found)
        except KeyboardInterrupt:
            if made.of is None:
                raise
            answered()  # an earlier answer is there
        made.show()
        content |= made.as_dict()
    if stopped():
        print(f"glenside: interrupted: {one_line(output or 'this')} is what was found by then", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    most = found.most_bytes
    raise typer.Exit(WRONG if most is not None and any(one.memory > most for one in made.lowered) else found.status)


def _require_emitted(emit: str, after: str | None, without: Sequence[str], output: str | None) -> None:
    """Raises BadInput for options of passes that do not fit each other."""
    from glenside.codegen.pipeline import NAMES, require_optional

    require_optional(without)
    if emit not in ("c", "loops", "passes"):
        raise BadInput(f"--emit is c, loops or passes, got {emit!r}")
    if after is not None and emit != "loops":
        raise BadInput("--after is for --emit loops")
    if after is not None and after not in NAMES:
        raise BadInput(f"--after is one of {', '.join(NAMES)}, got {after!r}{suggestion(after, NAMES)}")
    if emit == "passes" and output is not None:
        raise BadInput("--emit passes prints a table and writes no file: leave -o out")


@dataclass
class _Made:
    """Writes each answer as C or loops as soon as it is found, so that an interrupt leaves a complete file.

    of       the answer that was written last
    loops    the loops after the pass `after`, if it is given
    nests    pass -> number of nests after it
    """

    machines: Sequence[Machine | None]
    emit: str
    output: str | None
    check: bool = False
    after: str | None = None
    without: Sequence[str] = ()
    of: Prepared | None = None
    lowered: Sequence[Lowered] = ()
    library: Library | None = None
    read: str = ""
    """The comparison of the files with the program, before they got their names, as text."""
    loops: Loops | None = None
    nests: dict[str, int] = field(default_factory=dict)

    def put(self, found: Prepared) -> None:
        """Writes all files or none. Raises BadInput, and KeyboardInterrupt if a signal leaves no time."""
        from glenside.check.compiled import Function
        from glenside.check.written_c import write
        from glenside.ir.files import write_text

        if self.of is not None and self.of.program.term is found.program.term:
            return
        with finishing():
            with status_line("lower"):
                lowered = [self._lowered(found, of) for of in self.machines]
            if self.check:
                with status_line("check"):
                    for one in lowered:
                        Function(one, one.machine).checked()
            made = None
            if self.emit == "c":
                assert self.output is not None, "C has a file"
                made, self.read = write(lowered, self.output, read_back)
            elif self.output is not None and self.output != "-":
                write_text(self.output, f"{self.loops or lowered[0].loops}\n")
            self.of, self.lowered, self.library = found, lowered, made

    def _lowered(self, found: Prepared, machine: Machine | None) -> Lowered:
        """Lowers a program; records the number of nests after each pass and the loops after the pass `after`."""
        from glenside.codegen.loop_ir.pass_observer import observed
        from glenside.codegen.runtime.compiled_function import keeping

        def observe(name: str, loops: Loops) -> None:
            self.nests[name] = len(loops.nests)
            if name == self.after:
                self.loops = loops

        if self.emit == "c":
            return keeping(found.programs, machine, found.most_bytes, self.without)
        self.loops, self.nests = None, {}
        with observed(observe):
            made = keeping(found.programs, machine, found.most_bytes, self.without)
            made.verify()
        if self.after is not None and self.loops is None:
            raise BadInput(f"the pass {self.after} did not run: it was left out, or this program does not need it")
        return made

    def as_dict(self) -> dict[str, Any]:
        """Returns the passes that ran for each machine, or the files, as JSON."""
        from glenside.codegen.c_library.export import machine_name

        of = [
            {
                "machine": machine_name(one.machine),
                "nests": len(one.loops.nests),
                "bytes": one.memory,
                "passes": [{"name": n, "seconds": s, "nests": self.nests.get(n)} for n, s in one.seconds.items()],
            }
            for one in self.lowered
        ]
        files = {} if self.library is None else {"file": self.output, "build": [*self.library.build], "read": self.read}
        return {"program": self.lowered[0].program.name, "machines": of, **files}

    def show(self) -> None:
        """Prints the path of the file, or the loops or passes if there is no file."""
        from glenside.codegen.c_library.export import machine_name
        from glenside.codegen.runtime.compiled_function import budget_words

        if self.library is None:
            if self.emit == "passes":
                print_passes(self.lowered[0].program.name, self.lowered[0].seconds, self.nests)
            elif self.output in (None, "-"):
                print(self.loops or self.lowered[0].loops)
            return
        path, most = Path(self.output or ""), None if self.of is None else self.of.most_bytes
        for one in self.lowered:
            print(f"{path}: {len(one.loops.nests)} nests of loops, for {machine_name(one.machine)}.")
            print(one.arena)
            if one.schedule is not None:
                print(one.schedule)
            if most is not None:
                print(f"Budget: {budget_words(one.memory, most)}.")
        print(f"Weights: {len(self.library.weights):,} bytes, in the order in which they are read.")
        print(f"{self.read[:1].upper()}{self.read[1:]}.")
        within = "" if path.parent == Path() else f", in {path.parent}"
        print(f"Compile it{within}: {' && '.join(self.library.build)}")


def run_compiled(load: Callable[[], Program], on: str, seed: int) -> tuple[Any, Sequence[str]]:
    """Compiles a program for a machine, runs it on the given inputs, and returns its value and result names.

    Inputs with values are inputs of the compiled function too. Raises BadInput.
    """
    from glenside import driver
    from glenside.codegen.processor.model import MACHINES, PLAIN, machine_of
    from glenside.formats.sources import require_given

    machines = ("native", PLAIN, *MACHINES)
    if on not in machines and not on.endswith(".toml"):
        raise BadInput(
            f"a program runs in the interpreter, --on spu, or --on {', '.join(machines)} or a .toml file, got {on!r}"
        )
    machine_of(on)
    program = load()
    require_given(program)
    with status_line("compile"):
        opened, values = program.seeded_constants(seed).with_inputs_open()
        compiled = driver.compile(opened, "none", machine=on)
    given = {name: array for name, array in values.items() if name in opened.inputs}
    return waited_for(lambda: compiled(given)), program.result_names()


@dataclass(frozen=True)
class Prepared:
    """The program to compile, with values for all constants; the result of its search, if any, and the exit status."""

    program: Program
    found: Result | None = None
    status: int = OK

    @property
    def programs(self) -> list[Program]:
        """The program, and the unoptimized one, which may need less memory."""
        return [self.program, *([] if self.found is None else [self.found.prepared])]

    @property
    def most_bytes(self) -> float | None:
        """The memory budget in bytes, or None."""
        return None if self.found is None else self.found.target.most_bytes


def machines_for(text: str | None, target: str | None) -> tuple[Sequence[Machine | None], Target | None]:
    """Returns the machines to compile for and the target to optimize for.

    A target with a machine of its own determines the machine. Raises BadInput, also if --machine is given without it.
    """
    from glenside.codegen.processor.model import machines_of
    from glenside.targets.base import Compiles
    from glenside.targets.chosen import DEFAULT_TARGET, target_named

    machines = machines_of("native" if text is None else text)
    wanted = target_named(DEFAULT_TARGET if target is None else target, None, machines[0])
    if wanted is None:
        return machines, None
    found = wanted.compiled_for(machines[0]) if isinstance(wanted, Compiles) else wanted
    own = found.processor if isinstance(found, Compiles) else None
    if own is None:
        return machines, found
    if replace(own, threads=1) in machines:
        return [machine and replace(machine, threads=own.threads) for machine in machines], found
    if text is not None:
        raise BadInput(f"--target {target} is of {own.name}, which is not among --machine {text}: leave one out")
    return [own], found


def prepared(
    source: Valued,
    machine: Machine | None,
    target: Target | None,
    bounds: Bounds,
    on_answer: Callable[[Prepared], None] = lambda _: None,
    *,
    by_default: bool = False,
) -> Prepared:
    """Loads a program and optimizes it for the target, or returns it unoptimized without one.

    on_answer   callback for each answer that will still be refined or checked
    by_default  True: if the target refuses the program, return it unoptimized, with a note

    Raises BadInput.
    """
    from glenside.driver import as_it_is
    from glenside.egraph.search import Search
    from glenside.passes.integer_sums import for_processors
    from glenside.passes.network import uninterrupted
    from glenside.passes.recurrences import with_loops

    bounds.limits()  # raises for wrong options, which must not count as a refusal by the target
    note = ""
    if target is not None:
        try:
            return _searched(source, target, bounds, on_answer)
        except GlensideError as error:
            if not by_default or error.status != GlensideError.status:
                raise
            note = f"glenside: note: {one_line(as_it_is(error))}"
    program = with_loops(source.loader()().seeded_constants(source.seed))
    if note:
        print(note, file=sys.stderr)
    return Prepared(program if machine is None else uninterrupted(*for_processors(program, Search())))


def _searched(source: Valued, target: Target, bounds: Bounds, on_answer: Callable[[Prepared], None]) -> Prepared:
    """Optimizes a program, and prints its faults to standard error."""
    from glenside.cli.search import Outcome, search

    def of(result: Result, status: int = OK) -> Prepared:
        return Prepared(replace(result.program, name=result.original.name), result, status)

    def keep(result: Result) -> None:
        on_answer(of(result))
        unless_stopped()

    result = search(source, target, bounds, verify=True, drawn=True, on_answer=keep)
    if result.target.most_bytes is not None:
        result.report.notes = []  # the compiled program has a memory plan of its own
    status = Outcome(source, result, result.program).exit_status(checked=True)
    report = result.report
    if status == FAILED:
        print(f"glenside: note: the search failed, what is compiled is without it: {report.faults[0]}", file=sys.stderr)
    if status == WRONG:
        unmapped = report.mapped < len(report.layers)
        said = f"{report.mapped} of {len(report.layers)} layers are mapped" if unmapped else f"check: {report.checked}"
        print(f"glenside: note: {'; '.join([*report.notes, said])}", file=sys.stderr)
    return of(result, status)
