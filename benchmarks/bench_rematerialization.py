"""Measures multiply-adds and peak memory of training steps that recompute activations.

    python -m benchmarks.bench_rematerialization

Writes a table and its picture, results/bench_rematerialization.png. A step is softmax cross-entropy (squared error for
the U-Net) and momentum; batch normalizations use their stored statistics. It is lowered for vectors of 512 bits, and
not run. Columns:

- `policy`: `keep all, as given`: each nest once, in the order of the program. `keep all`: in the best order that is
  found. `N blocks`, `blocks of root n`: blocks are recomputed, the usual policy. `within P%`: a schedule within P % of
  the memory of `keep all`.
- `budget`, `needed`, `allocated`: bytes of the budget, of the schedule, and of the arena (activations and temporaries).
  `state`: bytes of weights and optimizer state, which come on top.
- `more-percent`, `bound-percent`: additional multiply-adds, and their lower bound. `gap-percent`: the optimality gap.
- `again`: nests that run more than once. `held`: whether the budget holds.
- `least`: lower bound on the bytes of any schedule: in any order if `any` is yes, else in this order.
- `seconds`: processor time of planning.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import glenside as gl
from glenside.codegen.lowering.constant_preparation import prepared
from glenside.codegen.memory.buffer_arena import LINE, arena
from glenside.codegen.passes.rematerialization.initial_order import ordered
from glenside.codegen.passes.rematerialization.live_sets import Run
from glenside.codegen.passes.rematerialization.plan import in_blocks, scheduled_within
from glenside.codegen.passes.rematerialization.steps import Steps, rescheduled, steps_of
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES
from glenside.gradients.training import state_of
from glenside.ir.dtypes import RECORDS
from glenside.ir.program import Program

RESULTS = Path(__file__).parent / "results"
NETWORKS = {"mobilenet-v1": 32, "resnet-18": 32, "unet-small": 8}
SHARES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.45, 0.4, 0.35)
BLOCKS = (2, 4, 8, 16)
COLUMNS = "network batch policy budget needed allocated multiply-adds more-percent bound-percent gap-percent again "
COLUMNS += "least any state held seconds"
MB = 1e6


def training(name: str, batch: int) -> Program:
    """Builds a training step: weights, scales and offsets are trained, statistics are not."""
    network = gl.models.load(name, batch=batch)
    statistics = (".mean", ".var")
    trained = [n for n, t in network.constants_declared.items() if t.dtype == "float32" and not n.endswith(statistics)]
    loss = "squared-error" if name.startswith("unet") else "softmax-cross-entropy"
    return prepared(gl.training_step(network, loss, gl.Momentum("0.01"), weights=trained).program, lazily=True)


def rows(name: str, batch: int) -> Iterator[dict[str, object]]:
    """Yields the policies, and schedules within ever lower budgets until no schedule fits."""
    program = training(name, batch)
    loops = lower(program, MACHINES["avx512"])
    steps = steps_of(loops)
    state = sum(t.dims.product() * RECORDS[t.dtype].numpy.itemsize for t in state_of(program))
    own: dict[str, object] = {
        "network": name,
        "batch": batch,
        "state": state,
        "least": steps.least * LINE,
        "any": "yes",
    }
    once = ordered(steps)
    yield {**own, **_policy("keep all, as given", Run(steps, tuple(range(len(steps.steps)))), steps)}
    yield {**own, **_policy("keep all", once, steps)}
    yield {**own, **_policy("blocks of root n", in_blocks(steps, once), steps)}
    for count in BLOCKS:
        yield {**own, **_policy(f"{count} blocks", in_blocks(steps, once, count), steps)}
    for share in SHARES:
        begin = time.process_time()
        made, plan = scheduled_within(loops, round(once.peak * LINE * share))
        taken = time.process_time() - begin
        size = arena(made).size
        yield {
            **own,
            "policy": f"within {share:.0%}",
            "budget": plan.budget,
            "needed": plan.peak,
            "allocated": size,
            "multiply-adds": plan.work,
            "more-percent": _more(plan.work, steps),
            "bound-percent": _more(plan.bound, steps) if plan.holds else "",
            "gap-percent": f"{100 * plan.gap:.4f}" if plan.holds else "",
            "again": plan.again,
            "least": plan.least,
            "any": "yes" if plan.any_order else "no",
            "held": "yes" if size <= plan.budget else "no",
            "seconds": f"{taken:.1f}",
        }
        if not plan.holds:
            return


def _policy(policy: str, run: Run, steps: Steps) -> dict[str, object]:
    size = arena(rescheduled(steps, run.order)).size
    taken = {"multiply-adds": run.work, "more-percent": _more(run.work, steps), "again": sum(run.again)}
    return {"policy": policy, "needed": run.peak * LINE, "allocated": size, **taken}


def _more(work: float, steps: Steps) -> str:
    return f"{100 * (work - steps.work) / steps.work:.4f}"


def draw(found: list[dict[str, object]], path: Path) -> None:
    """Plots multiply-adds against the peak, one network per plot."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(str(row["network"]) for row in found))
    figure, axes = pyplot.subplots(1, len(names), figsize=(4.6 * len(names), 3.9), squeeze=False, layout="constrained")
    for plot, name in zip(axes[0], names, strict=True):
        own = [row for row in found if row["network"] == name]
        kinds = {
            "schedules": [r for r in own if str(r["policy"]).startswith("within") and r["held"] == "yes"],
            "blocks computed again": [r for r in own if "blocks" in str(r["policy"])],
            "keep all": [r for r in own if str(r["policy"]).startswith("keep")],
        }
        styles = {"schedules": "o-", "blocks computed again": "s", "keep all": "D"}
        for kind, points in kinds.items():
            places = [(_megabytes(r["allocated"]), float(str(r["more-percent"]))) for r in points]
            plot.plot(*zip(*sorted(places), strict=True), styles[kind], label=kind, markersize=5)
        plot.axvline(_megabytes(own[0]["least"]), color="gray", linestyle=":", label="no schedule takes less")
        plot.set_yscale("symlog", linthresh=0.1)
        plot.set_ylim(-0.02, 100)
        plot.set_xlim(left=0)
        plot.set_title(f"{name}, batch {own[0]['batch']}")
        plot.set_xlabel("activations and temporaries, MB")
    axes[0][0].set_ylabel("more multiply-adds, %")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize="small", loc="outside lower center", ncols=len(labels))  # beside no point
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _megabytes(count: object) -> float:
    return int(str(count)) / MB


def main() -> None:
    """Measure all networks, or the named ones, and keep the rows of others."""
    path = RESULTS / "bench_rematerialization.csv"
    names = sys.argv[1:] or [*NETWORKS]
    there = list(csv.DictReader(path.open(encoding="utf-8"))) if path.exists() else []
    found: list[dict[str, object]] = [{**row} for row in there if row["network"] not in names]
    for name in names:
        for row in rows(name, NETWORKS.get(name, 1)):
            found.append(row)
            print(*(f"{row.get(column, '')}" for column in COLUMNS.split()), sep=", ", flush=True)
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, COLUMNS.split())
                writer.writeheader()
                writer.writerows(found)
    draw(found, RESULTS / "bench_rematerialization.png")


if __name__ == "__main__":
    main()
