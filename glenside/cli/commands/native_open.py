"""`glenside compile` with open sizes, as in `--dim seq=1..512`: one C function for each size of a range."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from glenside.cli.c_files import read_back, require_c_file, require_here
from glenside.cli.options import Compilable
from glenside.cli.output import json_report, status_line, writable
from glenside.ir.errors import BadInput
from glenside.ir.interrupts import finishing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from glenside.codegen.c_library.export import Library
    from glenside.codegen.open_sizes.lowered import OpenLowered
    from glenside.codegen.open_sizes.lowered_chain import LoweredChain
    from glenside.ir.open_program import OpenProgram


def compile_open(
    source: Compilable,
    output: str | None,
    machine: str | None,
    target: str | None,
    passes: bool,
    check: bool,
    json_path: str | None,
) -> None:
    """Writes a program with open sizes as C, whose function takes the sizes. Raises BadInput.

    passes  True if loops or passes are asked for, which are of fixed sizes
    """
    from glenside.check.open_function import lowered_for_c
    from glenside.check.written_c import write
    from glenside.codegen.processor.model import machines_of
    from glenside.targets.chosen import DEFAULT_TARGET, target_of_open

    load: Callable[[], Any] = source.loader(may_be_open=True)  # returns an OpenProgram
    if passes:
        raise BadInput("--emit, --after and --without are for programs of fixed sizes: give numbers by --dim")
    machines = machines_of("native" if machine is None else machine)
    writable(output)
    require_c_file(output, machines)
    if check:
        require_here(machines)
    assert output is not None, "C has a file"
    program: OpenProgram = load().mapped(lambda own: own.seeded_constants(source.seed))
    targets = [target_of_open(program, DEFAULT_TARGET if target is None else target, of) for of in machines]
    with json_report(json_path) as content, finishing():
        with status_line("lower"):
            own = zip(machines, targets, strict=True)
            lowered = [lowered_for_c(program, wanted, of, check) for of, wanted in own]
        made, read = write(lowered, output, read_back)
        _show(lowered, Path(output), made, read)
        content |= {
            "program": program.name,
            "sizes": {name: list(own) for name, own in program.ranges.items()},
            "machines": [_described(one) for one in lowered],
            "file": output,
            "build": [*made.build],
            "read": read,
        }


def _described(lowered: OpenLowered | LoweredChain) -> dict[str, object]:
    from glenside.codegen.c_library.export import machine_name

    return {
        "machine": machine_name(lowered.machine),
        "nests": len(lowered.written.nests),
        "bytes": lowered.arena.bytes_of(1),
        "verified": [dict(one.sizes) for one in lowered.verified],
        "seconds": lowered.seconds,
        "remarks": lowered.remarks,
    }


def _show(lowered: Sequence[OpenLowered | LoweredChain], path: Path, made: Library, read: str) -> None:
    from glenside.codegen.c_library.export import machine_name
    from glenside.ir.open_program import words_of

    for one in lowered:
        ranges = ", ".join(f"{name} {words_of(own)}" for name, own in one.open.ranges.items())
        print(f"{path}: one function for {ranges}, for {machine_name(one.machine)}.")
        print(one.arena)
        at = ", ".join("x".join(map(str, own.sizes.values())) for own in one.verified)
        print(f"Verified at {len(one.verified)} sizes: {at}.")
        for remark in one.remarks:
            print(f"{remark[:1].upper()}{remark[1:]}.")
    print(f"Weights: {len(made.weights):,} bytes, in the order in which they are read.")
    print(f"{read[:1].upper()}{read[1:]}.")
    within = "" if path.parent == Path() else f", in {path.parent}"
    print(f"Compile it{within}: {' && '.join(made.build)}")
