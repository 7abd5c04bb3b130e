"""Options that several commands have, declared once: groups are dataclasses, and a command names those it takes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

from glenside.cli.options import (
    ArraySize,
    Blocking,
    CheckIn,
    Explain,
    ExtractSeconds,
    Growth,
    Iterations,
    JsonFile,
    LinkName,
    MappingName,
    MaxRows,
    Memory,
    Method,
    NoCache,
    NoCheck,
    Nodes,
    Objective,
    OldLinkName,
    Opaque,
    OpenDims,
    Output,
    Parameters,
    Seconds,
    Seed,
    Shape,
    Shapes,
    Source,
    TargetName,
    Weights,
)
from glenside.ir.errors import BadInput, renamed
from glenside.ir.rational import byte_count

if TYPE_CHECKING:
    from glenside.egraph.saturation import Limits
    from glenside.ir.program import Program
    from glenside.targets.base import Target, Way


def command(function: Callable[..., None]) -> Callable[..., None]:
    """The function with an option for each field of its groups, as typer reads them from a signature."""
    hints = get_type_hints(function, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint) and isinstance(hint, type)}
    options: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in groups:
            options.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        types = get_type_hints(groups[name], include_extras=True)
        for field in fields(groups[name]):
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            kind = inspect.Parameter.KEYWORD_ONLY
            options.append(inspect.Parameter(field.name, kind, default=default, annotation=types[field.name]))

    @functools.wraps(function)
    def run(**values: Any) -> None:
        made = {name: group(**{f.name: values.pop(f.name) for f in fields(group)}) for name, group in groups.items()}
        function(**made, **values)

    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


@dataclass(frozen=True)
class Declared:
    """A program, and what it leaves open."""

    source: Source
    shapes: Shapes = None
    shape: Shape = None
    dims: OpenDims = None
    allow_opaque: Opaque = False
    parameters: Parameters = None

    def loader(self, **more: Any) -> Callable[[], Program]:
        """How to load it; what is neither a model nor a file is refused at once. Raises BadInput."""
        from glenside.formats.sources import loader

        return loader(
            **{"weights": None, "seed": 0, **more},
            source=self.source,
            shapes=self.shapes,
            shape=self.shape,
            parameters=self.parameters,
            dims=self.dims,
            allow_opaque=self.allow_opaque,
        )


@dataclass(frozen=True)
class Valued(Declared):
    """A program, and the values of its constants."""

    weights: Weights = None
    seed: Seed = 0

    def loader(self, **more: Any) -> Callable[[], Program]:
        return super().loader(weights=self.weights, seed=self.seed, **more)


@dataclass(frozen=True)
class Machine:
    """The target, and what is asked of it; options that are given come before what a file says."""

    target: TargetName = None
    array: ArraySize = None
    objective: Objective = None
    max_rows: MaxRows = None
    max_weight_growth: Growth = None
    link: LinkName = None
    network: OldLinkName = None

    def parsed(self) -> Target:
        """The target that they describe. Raises BadInput."""
        from glenside.targets import parse_target
        from glenside.targets.base import parse_objectives

        if (self.array is None) == (self.target is None):
            raise BadInput(
                "give the machine with --array RxC, such as --array 64x64, or with --target, and not with both"
            )
        if self.network is not None:
            renamed("--network", "--link")
        options: dict[str, object] = {name: getattr(self, name) for name in ("max_rows", "max_weight_growth")}
        options["link"] = self.link if self.network is None else self.network
        if self.objective is not None:
            options["objectives"] = parse_objectives(self.objective)
        given = {name: value for name, value in options.items() if value is not None}
        return parse_target(self.target if self.target is not None else f"systolic-array:{self.array}", **given)


@dataclass(frozen=True)
class Bounds:
    """The limits of a search, and whether its answer is kept."""

    node_limit: Nodes = 2_000_000
    time_limit: Seconds = 120.0
    iter_limit: Iterations = 1_000
    memory_limit: Memory = "8GB"
    no_cache: NoCache = False

    def limits(self) -> Limits:
        """Raises BadInput."""
        from glenside.egraph.saturation import Limits

        most = byte_count(self.memory_limit, "--memory-limit")
        for name in ("node_limit", "time_limit", "iter_limit"):
            if not (value := getattr(self, name)) >= 0:
                raise BadInput(f"--{name.replace('_', '-')} must be at least 0, got {value}")
        return Limits(nodes=self.node_limit, seconds=self.time_limit, iterations=self.iter_limit, memory=most)


@dataclass(frozen=True)
class Ways:
    """How to search, where the target leaves a choice."""

    blocking: Blocking = "tile-loops"
    mapping: MappingName = "best"
    method: Method = "auto"
    extract_seconds: ExtractSeconds = 60.0

    def way(self, target: Target, *, explain: Explain = False) -> Way:
        """Raises BadInput for a way that the target does not have."""
        from glenside.driver import way_of

        return way_of(target, self.blocking, self.mapping, self.method, self.extract_seconds, explain)


@dataclass(frozen=True)
class Results:
    """Where results go, and how the answer is checked."""

    json_path: JsonFile = None
    output: Output = None
    check: CheckIn = "exact"
    no_check: NoCheck = False
