"""A sweep runs every model on every machine for every objective, with one row each; finished rows are kept and reused.

A `Runner` runs the cells: `glenside.sweep.processes` in processes of this machine, `glenside.sweep.cluster` on a Dask
cluster. Rows are in the order of the cells, and only their seconds depend on the runner.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glenside import __version__
from glenside.cache import code_version
from glenside.check import EXACT, is_equal
from glenside.driver import optimize
from glenside.egraph.saturation import FAILED, Limits
from glenside.formats import ENDINGS, ending
from glenside.formats.sources import loader, pair
from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.names import shortened
from glenside.ir.program import Program
from glenside.ir.text import parse
from glenside.models import models as built_in
from glenside.sweep.programs import prepared, require_programs, whole_program
from glenside.targets.base import EmitsInstructions, Target, parse_objectives
from glenside.targets.registry import parse_target, sizes

if TYPE_CHECKING:
    from glenside.sweep.history import History

LIMITS = Limits(nodes=2_000_000, seconds=120.0, iterations=1_000, memory=8 << 30)
"""The time limit of the search of one cell."""


@dataclass(frozen=True)
class Cell:
    """One model on one machine for one list of objectives, as plain data, so that another process can run it."""

    model: str
    """The name in tables: that of a built-in model, or of a file."""
    text: str
    """The text of the program of a file; empty for a built-in model."""
    parameters: Mapping[str, str]
    """Parameters of a built-in model, as written."""
    array: str
    """A systolic array by its size, such as 16x16, or a target as on the command line."""
    multipliers: int
    """The number of multipliers of that machine, by which plots order machines."""
    objectives: tuple[str, ...]
    check: bool = False
    """True if the result was checked to be equal."""
    code: str = ""
    """Version and fingerprint of the code that must run the cell; empty for any."""
    quantize: str = ""
    """"random" if the network is to become one program of the machine from input to result; otherwise empty."""

    @property
    def objective(self) -> str:
        return ",".join(self.objectives)

    @property
    def identity(self) -> tuple[str, ...]:
        """The identity of a cell: cells with the same identity have the same result. It contains the program, not its
        file.
        """
        program = hashlib.sha256(self.text.encode()).hexdigest() if self.text else self.model
        own = json.dumps(dict(sorted(self.parameters.items()))), self.array, self.objective, self.code
        return program, *own, *([self.quantize] if self.quantize else [])

    def program(self) -> Program:
        """Loads the program. Raises GlensideError."""
        if not self.text:
            return loader(self.model, None, None, None, [f"{n}={v}" for n, v in self.parameters.items()], 0)()
        return replace(parse(self.text, file=self.model), name=self.model)

    def target(self) -> Target:
        """Returns the machine. Raises BadInput."""
        return machine(self.array, self.objectives)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_dict(cls, content: Mapping[str, Any]) -> Cell:
        """Undoes `as_dict`, also after a round trip through JSON."""
        return cls(**{**content, "objectives": tuple(content["objectives"])})


@dataclass(frozen=True)
class Row:
    """The result of one cell. Cycles and bytes are sums over layers."""

    layers: int = 0
    mapped: int = 0
    baseline_cycles: int = 0
    """Cycles of every product cut into tiles as it is written."""
    cycles: int = 0
    utilization: float = 0.0
    """Multiply-accumulates as a fraction of those of a machine that is busy in all of the cycles."""
    lower_bound: int = 0
    """The proven lower bound of the first objective, in its units."""
    gap: int = 0
    """Distance of the result to that bound."""
    bytes: int = 0
    seconds: float = 0.0
    """Seconds of loading, search, extraction, check, and the program."""
    stopped: str = ""
    """Why the search ended; `failed: ..` if a rule is wrong, in which case the row describes the baseline."""
    checked: str = ""
    """The worst verdict of the result and its layers; "not checked" if they were not compared."""
    failed: str = ""
    """Why there is no result, or empty."""
    black_boxes: int = 0
    """Opaque operators, which are not counted."""
    program_cycles: int = 0
    """Cycles of the whole program from input to result, with its memory accesses; 0 if there is no program."""
    program_bytes: int = 0
    """Bytes read from and written to DRAM."""
    picojoules: float = 0.0
    """The energy of that program; 0 if the machine does not specify the energy of accesses."""
    gates: float = 0.0
    """The area of the machine, in two-input NAND gates; 0 if unknown."""

    @property
    def complete(self) -> bool:
        """True if every layer is mapped, so that cycles can be compared."""
        return not self.failed and self.mapped == self.layers

    @property
    def ratio(self) -> float | None:
        """The cycles of the baseline mapping as a multiple of those of the result; None if undefined."""
        return self.baseline_cycles / self.cycles if self.complete and self.cycles else None

    @property
    def ok(self) -> bool:
        """True if everything is mapped, and equal where it was checked."""
        checked = is_equal(self.checked) or self.checked == "not checked"
        return self.complete and checked and not self.stopped.startswith(FAILED)

    def note(self) -> str:
        """Remarks for a reader of the row, or empty."""
        if self.failed:
            return self.failed
        parts = [f"{self.layers - self.mapped} not mapped"] if self.mapped < self.layers else []
        boxes = self.black_boxes
        parts += [f"{boxes} black box{'es' * (boxes > 1)} not counted"] if boxes else []
        parts += [f"stopped: {self.stopped}"] if self.stopped != "saturated" else []
        parts += [] if self.checked in (EXACT, "not checked") else [f"check: {self.checked}"]
        return "; ".join(parts)

    @classmethod
    def of_dict(cls, content: Any) -> Row:
        """Undoes `dataclasses.asdict`. Raises ValueError for anything that is not a row."""
        kinds = {"int": (int,), "float": (int, float), "str": (str,)}
        known = {field.name: kinds[str(field.type)] for field in fields(cls)}
        if not isinstance(content, dict) or content.keys() != known.keys():
            raise ValueError("it has not the fields of a row")
        for name, value in content.items():
            if not isinstance(value, known[name]) or isinstance(value, bool):
                raise ValueError(f"its {name} is {value!r}")
        return cls(**content)


def machine(text: str, objectives: Sequence[str]) -> Target:
    """Returns a systolic array by its size, or a target as on the command line. Raises BadInput."""
    return parse_target(_full(text), objectives=tuple(objectives))


def _full(text: str) -> str:
    return text if ":" in text else f"systolic-array:{text}"


def machines(text: str) -> list[str]:
    """Expands `npu:32x32/64x64,bandwidth=16/32;npu:8x8` into all combinations of the alternatives between slashes.

    A file is replaced by the machine that it describes, so that other computers do not need it. Raises BadInput.
    """
    found = []
    for one in (part.strip() for part in text.split(";")):
        if one.lower().endswith(".toml"):
            target = parse_target(one)
            if ":" not in target.name or target.description != parse_target(target.name).description:
                raise BadInput(f"{one}: a sweep is of machines that a command line can say, and this is none")
            found.append(target.name)
            continue
        name, colon, rest = one.partition(":")
        if not colon:
            raise BadInput(f"a target of a sweep is written with its options, such as npu:64x64, got {one!r}")
        choices = [_choices(part) for part in rest.split(",")]
        found += [f"{name}:{','.join(chosen)}" for chosen in product(*choices)]
    return found


def _choices(part: str) -> list[str]:
    """Expands `bandwidth=16/32` into bandwidth=16, bandwidth=32."""
    option, equals, values = part.rpartition("=")
    return [f"{option}{equals}{value}" for value in values.split("/")]


def _multipliers(text: str, objectives: Sequence[str]) -> int:
    """Returns a machine that a sweep supports. Raises BadInput."""
    target = parse_target(_full(text))
    if target.peak is None:
        raise BadInput(f"a sweep compares cycles, and {target.name} counts none")
    return machine(text, objectives).peak or 0


def cells(
    sources: Sequence[str],
    arrays: str = "",
    objectives: str = "cycles",
    parameters: Sequence[str] = (),
    check: bool = False,
    *,
    shapes: str | None = None,
    shape: Sequence[str] = (),
    dims: Sequence[str] = (),
    allow_opaque: bool = False,
    targets: str = "",
    quantize: str = "",
) -> list[Cell]:
    """The cells of a sweep, models first, then machines, then objectives; every program is loaded once, to refuse it
    now.

    sources      built-in models and program files
    arrays       systolic arrays, such as "16x16,32x128"
    targets      other machines, after those, such as "npu:32x32/64x64,bandwidth=16/32;npu.toml"
    objectives   such as "cycles;bytes" or "cycles,bytes;bytes"
    parameters   of built-in models, each NAME=VALUE
    shapes       a JSON file of shapes of tensors that the program files do not declare
    shape        the same, each NAME=1,3,32,32
    dims         sizes of named dimensions, each NAME=1, for those .onnx files among the sources that have them
    quantize     "random": networks are quantized, and each becomes one program of each machine
    allow_opaque whether operators of those files that have no meaning here are kept as black boxes
    Raises GlensideError, also for options given twice.
    """
    if not sources:
        raise BadInput("a sweep requires at least one model or file, got none")
    if not arrays and not targets:
        raise BadInput("a sweep requires machines: --arrays, such as 16x16,32x128, or --targets, such as npu:64x64")
    known = ["{}x{}".format(*sizes(text.strip())) for text in arrays.split(",")] if arrays else []
    known += machines(targets) if targets else []
    wanted = [parse_objectives(text) for text in objectives.split(";")]
    multipliers = {name: max(_multipliers(name, names) for names in wanted) for name in known}
    require_programs(quantize, [machine(name, wanted[0]) for name in known])
    values = dict(pair(text, "--set") for text in parameters)
    of_source = _dims_by_source(sources, dims, allow_opaque)
    models = [
        _model(source, sources, values, partial(_load_file, shapes, shape, of_source.get(source, ()), allow_opaque))
        for source in sources
    ]
    _refuse_idle(sources, models, {"--set": values, "--shapes": shapes or shape, "--dim": dims or allow_opaque})
    for what, given in (
        ("parameter", [pair(text, "--set")[0] for text in parameters]),
        ("model", [source if text else model for source, (model, text, _) in zip(sources, models, strict=True)]),
        ("array", known),
        ("list of objectives", [",".join(names) for names in wanted]),
    ):
        twice = next((name for name, count in Counter(given).items() if count > 1), None)
        if twice is not None:
            raise BadInput(f"a sweep requires each {what} once, got {twice} twice")
    return [
        Cell(model, text, own, array, multipliers[array], names, check, code_fingerprint(), quantize)
        for model, text, own in models
        for array in known
        for names in wanted
    ]


Model = tuple[str, str, Mapping[str, str]]
"""The name of a source, the text of a file, and the parameters of a built-in model."""


def _model(source: str, sources: Sequence[str], values: Mapping[str, str], load: Callable[[str], Program]) -> Model:
    name = source.replace("_", "-")
    if ending(source) not in ENDINGS and name in built_in():
        Cell(name, "", values, "1x1", 1, ()).program()
        return name, "", values
    program = load(source)
    alike = sum(Path(other).stem == Path(source).stem for other in sources)
    return source if alike > 1 else program.name, str(program), {}


def _load_file(
    shapes: str | None, shape: Sequence[str], dims: Sequence[str], allow_opaque: bool, source: str
) -> Program:
    kind = ending(source)
    sizes: tuple[str | None, list[str]] = (None, []) if kind == ".json" else (shapes, list(shape))
    open_: dict[str, Any] = {"dims": dims, "allow_opaque": allow_opaque} if kind == ".onnx" else {}
    return loader(source, *sizes, None, None, 0, **open_)()


def _dims_by_source(sources: Sequence[str], dims: Sequence[str], allow_opaque: bool) -> dict[str, list[str]]:
    """Returns the sizes for each .onnx file that has those dimensions. Raises BadInput for one that no file has."""
    files = [source for source in sources if ending(source) == ".onnx"] if dims else []
    if not files:
        return {}
    from glenside.importers.onnx.checks import dimension_names
    from glenside.importers.onnx.model import read_model

    names: dict[str, list[str]] = {}
    for source in files:
        try:
            names[source] = dimension_names(read_model(source).graph, allow_opaque)
        except BadInput as error:
            raise BadInput(f"{source}: {error.message}") from None
    for flag in dims:
        name, _ = pair(flag, "--dim")
        if not any(name in known for known in names.values()):
            known = sorted({n for of_file in names.values() for n in of_file})
            words = ", ".join([*map(shortened, known[:8]), *[".."] * (len(known) > 8)]) or "none"
            raise BadInput(f"a size is given for {shortened(name)}, but the dimensions of the models are {words}")
    return {source: [flag for flag in dims if pair(flag, "--dim")[0] in known] for source, known in names.items()}


def _refuse_idle(sources: Sequence[str], models: Sequence[Model], given: Mapping[str, Any]) -> None:
    """Raises BadInput for flags that apply to none of the sources."""
    files = any(text for _, text, _ in models)
    if given["--set"] and all(text for _, text, _ in models):
        raise BadInput("--set gives a parameter of a built-in model, and the sweep has files only")
    if given["--shapes"] and not files:
        raise BadInput("--shapes and --shape are for files, and the sweep has built-in models only; see --set")
    if given["--dim"] and not any(ending(source) == ".onnx" for source in sources):
        raise BadInput("--dim and --allow-opaque are for .onnx files, and the sweep has none")


def code_fingerprint() -> str:
    """The version, and a digest of all source code that a result depends on."""
    return f"{__version__}+{code_version()[:16]}"


def optimize_cell(cell: Cell) -> Row:
    """Runs one cell in this process. An error becomes the row's reason; only interrupts are raised."""
    if cell.code not in ("", code_fingerprint()):
        return Row(failed=f"it is for the code {cell.code}, and the code here is {code_fingerprint()}")
    try:
        return _optimized(cell)
    except GlensideError as error:
        return Row(failed=str(error))
    except Exception as error:
        return Row(failed=" ".join(f"{type(error).__name__}: {error}".split()))


def _optimized(cell: Cell) -> Row:
    started = time.perf_counter()
    given, target = cell.program(), cell.target()
    program, network = prepared(given, cell.quantize)
    result = optimize(program, target, limits=LIMITS, verify=cell.check, load_seconds=time.perf_counter() - started)
    report, total = result.report, result.report.total
    work = (total["cycles"] or 0) * (report.peak or 0)
    verdicts = [*(row.checked for row in report.layers if cell.check), report.checked]
    worst = next((v for v in verdicts if not is_equal(v)), None) or next((v for v in verdicts if v != EXACT), EXACT)
    made = {} if network is None else whole_program(result, network)
    return Row(
        layers=len(report.layers),
        mapped=report.mapped,
        black_boxes=sum(report.black_boxes.values()),
        baseline_cycles=report.baseline["cycles"] or 0,
        cycles=total["cycles"] or 0,
        lower_bound=report.lower_bound or 0,
        gap=report.gap or 0,
        bytes=total.get("bytes") or 0,
        utilization=report.macs / work if work else 0.0,
        seconds=time.perf_counter() - started if made else report.seconds["total"],
        stopped=": ".join((result.stopped, *report.faults)),
        checked=worst,
        gates=target.gates if isinstance(target, EmitsInstructions) else 0.0,
        **made,
    )


# A runner yields the position and the row of each cell as it is finished. It looks at `stop` at least every 0.2 s, and
# when that is true, or when the runner is closed, it ends its processes and returns.
Stop = Callable[[], bool]
Runner = Callable[[Sequence[Cell], Stop], Generator[tuple[int, Row], None, None]]


def sweep(
    wanted: Sequence[Cell],
    runner: Runner,
    history: History | None = None,
    *,
    stop: Stop = lambda: False,
    on_row: Callable[[Cell, Row], None] = lambda *_: None,
) -> list[Row | None]:
    """Returns the row of each cell, in order; None for cells that did not finish before `stop`.

    Rows in the history are reused, except failures, which are run again; new rows are appended to it as they finish.
    Raises BadInput if they cannot be appended.
    """
    rows: list[Row | None] = [None if history is None else history.row(cell) for cell in wanted]
    left = [position for position, row in enumerate(rows) if row is None]
    if not left:
        return rows
    with closing(runner([wanted[position] for position in left], stop)) as results:
        for number, row in results:
            rows[left[number]] = row
            if history is not None:
                history.append(wanted[left[number]], row)
            on_row(wanted[left[number]], row)
    return rows
