"""Times networks in SPU between two processes: plain, and with variants chosen for time.

    python -m benchmarks.bench_spu_time    # GLENSIDE_SPU_PYTHON names the python of an environment with SPU

A proxy between the two processes imposes rate and latency of the link. Each process computes on one thread. Plain and
chosen alternate. Columns:

- `link`: `lan` is 384 MB/s and 0.15 ms, `wan` is 44 MB/s and 20 ms.
- `part`, `count`: a layer, run alone, and how many layers are equal to it; the sum of all convolutions; or the network,
  run as one program.
- `form`: plain or chosen.
- `bytes`, `messages`: measured for one party. Columns with `predicted` are predictions of the same.
- `seconds`: median of five runs. `processor`: processor seconds of the busier party.
- `of plain`: median ratio of pairs, chosen over plain.

The committed table was measured on two cores of a shared machine: its ratios say more than its seconds.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import glenside as gl
from glenside.execution.spu.comparison import predicted
from glenside.execution.spu.layers import own_layers
from glenside.execution.spu.session import Job, Measured, measure
from glenside.ir.program import Program, seeded
from glenside.targets.mpc.link import LINKS
from glenside.targets.mpc.target import MPC

RESULTS = Path(__file__).parent / "results"
NETWORKS: dict[str, dict[str, Any]] = {"resnet-18": {"resolution": 32, "stem": "3x3"}}
RUNS = 5
# No variant has so small an error, so each layer stays plain, and scales go into weights as in what is chosen.
_NO_ERROR = 1e-30
WHOLE = "the network, run as one"


@dataclass(frozen=True)
class Part:
    """A program to run, and how often it occurs in the network; `form` is plain, or chosen for a link."""

    name: str
    count: int
    form: str
    program: Program


def parts(program: Program, form: str, target: MPC) -> Iterator[Part]:
    """Returns the distinct layers of a network, and the whole network."""
    ready = target.ready(program.seeded_constants(0), 0)
    for layer in own_layers(ready):
        yield Part(layer.names[0], len(layer.names), form, layer.program)
    yield Part(WHOLE, 1, form, ready)


def rows(name: str, parameters: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Measures the seconds of each part on each link."""
    program = gl.models.load(name, **parameters)
    targets = {link: MPC(link=link) for link in LINKS}
    plain = gl.optimize(program, MPC(max_error=_NO_ERROR)).program
    made = [*parts(plain, "plain", MPC())]
    for link, target in targets.items():
        made += parts(gl.optimize(program, target).program, f"chosen for {link}", target)
    # Plain and chosen one after the other, the network last: what ran just before is felt.
    order = [part.name for part in made]
    jobs: dict[str, Job] = {}
    for part in sorted(made, key=lambda part: order.index(part.name)):
        values = {n: seeded(t, 0) for n, t in part.program.inputs.items()}
        links = [part.form.removeprefix("chosen for ")] if part.form != "plain" else [*LINKS]
        before = jobs.get(_key(part))
        links = [*dict.fromkeys([*(before.links if before else ()), *links])]
        jobs[_key(part)] = Job(part.program, values, links=links, runs=RUNS)
    runs = measure([*jobs.values()], LINKS, progress=_show)
    found = dict(zip(jobs, runs, strict=True))
    for link, target in targets.items():
        for form in ("plain", f"chosen for {link}"):
            yield from _of_form(name, link, form, made, target, found)


def _show(done: int, of: int) -> None:
    print(f"{done} of {of} runs", end="\r", file=sys.stderr)


def _key(part: Part) -> str:
    return f"{part.name == WHOLE} {part.program}"


def _of_form(
    network: str, link: str, form: str, made: list[Part], target: MPC, found: Mapping[str, Measured]
) -> Iterator[dict[str, Any]]:
    plain = {part.name: found[_key(part)] for part in made if part.form == "plain"}
    total: Counter[str] = Counter()
    for part in (part for part in made if part.form == form):
        said, measured = predicted(part.program, target, frozenset()), found[_key(part)]
        taken = {
            "bytes predicted": said.bytes,
            "bytes": measured.bytes,
            "messages predicted": said.messages,
            "messages": measured.messages,
            "seconds predicted": said.seconds,
            "seconds": measured.median(link),
            "processor": statistics.median(measured.processor[link]),
        }
        pairs = zip(measured.seconds[link], plain[part.name].seconds[link], strict=True)
        yield _row(network, link, form, part.name, part.count, taken, statistics.median(a / b for a, b in pairs))
        if part.name not in (WHOLE, "fc"):
            total.update({name: part.count * amount for name, amount in taken.items()})
            total["count"] += part.count
    count = total.pop("count")
    yield _row(network, link, form, f"{count} convolutions, each run by itself", 1, total)


def _row(
    network: str, link: str, form: str, part: str, count: int, taken: Mapping[str, float], ratio: float | None = None
) -> dict[str, Any]:
    row = {"network": network, "link": link, "part": part, "count": count}
    row |= {"form": "plain" if form == "plain" else "chosen"}
    row |= {name: round(amount, 3) for name, amount in taken.items()}
    return row | {"of plain": "" if ratio is None else round(ratio, 3), "runs": RUNS}


def main() -> None:
    found = [row for name, parameters in NETWORKS.items() for row in rows(name, parameters)]
    with (RESULTS / "bench_spu_time.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*found[0]])
        writer.writeheader()
        writer.writerows(found)
    for row in found:
        print(row)


if __name__ == "__main__":
    main()
