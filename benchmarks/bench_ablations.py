"""Measures what each piece of machinery buys that is there for speed alone: each is switched off by itself.

    python -m benchmarks.bench_ablations [--commands] [PIECE ..]

Writes results/bench_ablations.csv; rows of named pieces are replaced. `--commands` measures the pieces of commands,
otherwise those of compiled programs. A piece is a pass, left out as by `--without`, or functions that are replaced
(`PROGRAMS`, `COMMANDS`). Columns:

- `piece`, `of`: the piece, and the program or command that it was measured on: of those that were tried, the one that
  gains most.
- `threads`: of a program. A command has two processors.
- `without over with`, `quartiles`: median ratio of times, without the piece over with it, run in turn.

A piece that buys less than 2 % of every program, or 3 % of every command, is deleted. These were, with the most that
they bought: prefetching unpacked rows of the next tile (ResNet-50 1.8 %; products of two inputs of 16 x 4096 x 256 took
12 % longer with it); prefetching operands that are added after a product (ResNet-50 1.5 %); a longer distance of
prefetches where one tile reads an operand (nothing measurable; 64 x 2048 x 512 took 10 % longer with it); predicting
transfers between the caches of threads (no choice changed in six networks on two threads; with costs measured on a
Xeon it was 2.5 % of the predicted time of MobileNetV1, at most 0.5 % of others).

Shared machines are noisy: compare within a row.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import glenside as gl
from glenside.builder.layout import reshape, transpose
from glenside.codegen.pipeline import OPTIONAL
from glenside.codegen.processor.model import Machine, machine_of
from glenside.codegen.runtime.compiled_function import Compiled, Lowered
from glenside.codegen.scheduling import select_schedule
from glenside.egraph.search import Search
from glenside.ir.program import Program
from glenside.passes.integer_sums import for_processors
from glenside.passes.network import uninterrupted

RESULTS = Path(__file__).parent / "results" / "bench_ablations.csv"
ROUNDS, ROUNDS_OF_COMMANDS = 41, 3
_SCHEDULING = "glenside.codegen.scheduling"
_TILING = f"{_SCHEDULING}.register_tiling"


@dataclass(frozen=True)
class Piece:
    """A piece of machinery.

    of        the program or command to measure
    replaced  dotted name -> what stands there without the piece; a pass needs none
    threads   of a program
    """

    of: str
    replaced: Mapping[str, Any] = field(default_factory=dict)
    threads: int = 1

    @contextmanager
    def off(self) -> Iterator[None]:
        """Switches the piece off within the block."""
        with ExitStack() as stack:
            for name, value in self.replaced.items():
                stack.enter_context(mock.patch(name, value))
            yield


def _none(*_: Any, **__: Any) -> tuple[()]:
    return ()


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _no_answer(*_: Any, **__: Any) -> Any:
    return mock.MagicMock(__enter__=lambda _: lambda: None)


PROGRAMS: dict[str, Piece] = {
    "fuse-softmax-rows": Piece("attention of 512 rows"),
    "fuse-producer-consumer": Piece("mobilenet-v1", threads=2),
    "interleave-phases": Piece("transposed convolution, optimized"),
    "fuse-padding": Piece("mobilenet-v3-large", threads=2),
    "prefetching packed operands": Piece(
        "resnet-18", {f"{_TILING}.asked_of_packed": _none, f"{_TILING}.run_ahead": _none}
    ),
    "prefetching strided operands": Piece(
        "attention of 1024 rows", {f"{_SCHEDULING}.prefetch.Reads.strided_ahead": lambda self: []}
    ),
    "prefetching channels in other pages": Piece("transposed convolution, optimized", {f"{_TILING}.next_tile": _none}),
    "prefetching the next band": Piece(
        "mobilenet-v1 of 448 pixels",
        {"glenside.codegen.passes.fuse_producer_consumer.asking_for_next": lambda statements, *_: [*statements]},
    ),
    "padding rows of 2,048 bytes": Piece(
        "dense layers of 128 rows", {"glenside.codegen.loop_ir.nest_builder._SET": 1 << 40}
    ),
    "copying panels": Piece("product of 64 x 2048 x 512", {f"{_TILING}.Tiles._copied": lambda *_: {}}),
    "packing rows": Piece("transposed convolution, optimized", {f"{_TILING}.packed_for_rows": _none}),
    "copying in squares": Piece("transposition", {f"{_SCHEDULING}.select_schedule._across": _nothing}),
}

_TENSORIZE = "tensorize mobilenet-v1 --target npu:64x64 --quantize random --no-cache -o {folder}/n.bin --on simulator"
_ARRAY = "tensorize resnet-18 --target systolic-array:16x16 --no-cache"
COMMANDS: dict[str, Piece] = {
    "starting search processes early": Piece(
        _ARRAY,
        {
            "glenside.egraph.search.start_workers_early": _nothing,
            "glenside.stages.start_workers_early": _nothing,
            "glenside.cli.begin": _nothing,
        },
    ),
    "searching in two processes": Piece(_TENSORIZE, {"glenside.targets.npu.target.NPU.search_parts": 1}),
    "importing the back end during the search": Piece(
        _TENSORIZE, {"glenside.targets.npu.target.NPU.load_back_end": _nothing}
    ),
    "all work in forked processes": Piece(_TENSORIZE, {"glenside.ir.forked_work.may_fork": lambda: False}),
    "checking in a forked process": Piece(_TENSORIZE, {"glenside.driver.forked_check": _no_answer}),
    "compiling the rules of the next search early": Piece(
        _ARRAY, {"glenside.egraph.process.Worker.compile_ahead": _nothing}
    ),
    "keeping schedules of equal blocks": Piece(
        "compile mobilenet-v1 --no-cache -o {folder}/c.c",
        {f"{_SCHEDULING}.select_schedule._known": select_schedule._known.__wrapped__},
    ),
}


def _attention(rows: int, heads: int, width: int) -> Program:
    b = gl.Builder("attention")
    x, wide = b.input("x", (rows, heads * width)), heads * width

    def projected(name: str) -> Any:
        product = b.matmul(x, b.constant(name, (wide, wide)))
        return transpose(reshape(product, (rows, heads, width)), (1, 0, 2))

    q, k, v = map(projected, ("q", "k", "v"))
    scores = b.softmax(b.matmul(q, transpose(k, (0, 2, 1))))
    return b.finish(b.matmul(scores, v))


def _dense(rows: int) -> Program:
    b = gl.Builder("dense")
    x = b.input("x", (rows, 768))
    for number, (given, made) in enumerate(((768, 3072), (3072, 768)) * 2):
        product = b.matmul(x, b.constant(f"w{number}", (given, made)))
        x = b.relu(b.add(product, b.constant(f"b{number}", (made,))))
    return b.finish(x)


def _product(rows: int, depth: int, columns: int) -> Program:
    b = gl.Builder("product")
    return b.finish(b.matmul(b.input("x", (rows, depth)), b.input("y", (depth, columns))))


def _transposition() -> Program:
    b = gl.Builder("transposition")
    return b.finish(transpose(b.relu(b.input("x", (1024, 1024))), (1, 0)))


def _phases() -> Program:
    b = gl.Builder("phases")
    x = b.input("x", (1, 192, 16000))
    return b.finish(b.conv_transpose(x, b.constant("w", (192, 96, 4)), strides=2, name="layer"))


MADE: dict[str, Callable[[], Program]] = {
    "attention of 512 rows": lambda: _attention(512, 8, 64),
    "attention of 1024 rows": lambda: _attention(1024, 4, 64),
    "dense layers of 128 rows": lambda: _dense(128),
    "mobilenet-v1 of 448 pixels": lambda: gl.models.load("mobilenet-v1", resolution=448),
    "product of 64 x 2048 x 512": lambda: _product(64, 2048, 512),
    "transposition": _transposition,
    "transposed convolution, optimized": _phases,
}


def _prepared(of: str, threads: int) -> tuple[Program, Machine]:
    """Returns a program, as it is or optimized, with constants, and the machine."""
    program = (MADE[of]() if of in MADE else gl.models.load(of)).seeded_constants(0)
    native = machine_of("native")
    assert native is not None
    machine = replace(native, threads=threads)
    if of.endswith("optimized"):
        return gl.optimize(program, gl.CPU(machine=machine, threads=threads), verify=False).program, machine
    return uninterrupted(*for_processors(program, Search())), machine


def _program(name: str, piece: Piece) -> list[float]:
    """Returns the ratios of a compiled program's times, without a piece over with it."""
    program, machine = _prepared(piece.of, piece.threads)
    whole = Compiled(Lowered(program, machine), machine)
    select_schedule._known.cache_clear()
    with piece.off():
        other = Compiled(Lowered(program, machine, without=[name] if name in OPTIONAL else []), machine)
    select_schedule._known.cache_clear()
    arrays, ratios = whole.drawn(), []
    for number in range(ROUNDS):
        seconds = {
            f: float(f.least_seconds(*arrays, rounds=1, threads=piece.threads).sum())
            for f in ((whole, other) if number % 2 else (other, whole))
        }
        ratios.append(seconds[other] / seconds[whole])
    return ratios


def _command(name: str, piece: Piece) -> list[float]:
    """Returns the ratios of a command's times, without a piece over with it."""
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        words = piece.of.format(folder=folder).split()
        for _ in range(ROUNDS_OF_COMMANDS):
            seconds = []
            for off in ("", name):
                begin = time.perf_counter()
                command = [sys.executable, "-m", "benchmarks.bench_ablations", "--run", off, "--", *words]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                seconds.append(time.perf_counter() - begin)
            ratios.append(seconds[1] / seconds[0])
    return ratios


def _row(name: str, piece: Piece, ratios: list[float], threads: str) -> dict[str, Any]:
    low, _, high = statistics.quantiles(ratios, n=4)
    ratio, of = f"{statistics.median(ratios):.3f}", piece.of.replace(" -o {folder}/n.bin", " -o n.bin")
    of = of.replace(" -o {folder}/c.c", " -o c.c")
    return {
        "piece": name,
        "of": of,
        "threads": threads,
        "without over with": ratio,
        "quartiles": f"{low:.3f} to {high:.3f}",
    }


def main() -> None:
    """Measures the named pieces, or all of a kind."""
    if sys.argv[1:2] == ["--run"]:  # a command of `_command`
        name, words = sys.argv[2], sys.argv[4:]
        from glenside.cli import main as run

        sys.argv = ["glenside", *words]
        with COMMANDS[name].off() if name else ExitStack():
            run()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commands", action="store_true")
    parser.add_argument("pieces", nargs="*")
    options = parser.parse_args()
    pieces, measure = (COMMANDS, _command) if options.commands else (PROGRAMS, _program)
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    comments = [line for line in lines if line.startswith("#")]
    known = {row["piece"]: row for row in csv.DictReader(line for line in lines if not line.startswith("#"))}
    for name in options.pieces or pieces:
        piece = pieces[name]
        known[name] = _row(name, piece, measure(name, piece), "" if options.commands else str(piece.threads))
        print(*known[name].values(), sep="\t", flush=True)
        with RESULTS.open("w", newline="") as stream:
            stream.writelines(f"{line}\n" for line in comments)
            writer = csv.DictWriter(stream, [*known[name]], lineterminator="\n")
            writer.writeheader()
            writer.writerows(known[one] for one in (*PROGRAMS, *COMMANDS) if one in known)


if __name__ == "__main__":
    main()
