"""Times an epoch of training a perceptron as compiled C, in PyTorch, JAX and numpy, and as plain loops.

    python -m benchmarks.bench_training [ROUNDS]    # with torch and jax installed; missing ones are named

The network is 784-256-100-10 with relu between layers: softmax cross-entropy, stochastic gradient descent at 0.1,
50,000 random examples in float32, in batches of 1,000. An epoch is 48 GFLOP: nobody computes the input's gradient.
Each entrant is a process of its own with as many processors as threads. It holds the examples in its own arrays before
the clock starts. All run an epoch in each round, alternately. Columns:

- `epoch s`, `least s`: median and least of rounds.
- `over Glenside`, `least over least`: median ratio of rounds, and ratio of the least times.
- `loss`: after the first epoch, from the same weights.

Plain loops are the same program without a schedule, as C for one thread at -O2; a few steps stand for an epoch. The
committed table is from a Xeon with AVX-512. Other work on a shared machine slows down some entrants more than others:
JAX's ratio was 1.67 on two threads in this run of eleven rounds, 1.71 in five rounds before, and 1.18 to 1.55 for a
version of Glenside that was 9 % slower. The products of an epoch alone need 0.207 s on one core at the peak that
`glenside calibrate` measures, and 0.104 s on two.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
SIZES = (784, 256, 100, 10)
EXAMPLES, BATCH = 50_000, 1_000
RATE = 0.1
ROUNDS = 15
WRONG = 1e-3
PAUSE = 0.05
"""Seconds between two turns, so that the threads of the previous runtime end."""
PLAIN_STEPS = 2
"""Number of steps of plain loops, from which the time of an epoch is extrapolated."""
GLENSIDE, PLAIN = "Glenside", "plain loops"
ENTRANTS = {
    GLENSIDE: "",
    "PyTorch": "torch",
    "PyTorch compiled": "torch",
    "JAX": "jax",
    "numpy": "numpy",
    PLAIN: "",
}
"""Maps each entrant to the module that it needs."""

Steps = Callable[[int], float]
"""Runs some steps from the first batch on; returns the loss of the last one."""


def _examples(folder: Path) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Draws images, labels and initial weights."""
    x, y = np.load(folder / "x.npy"), np.load(folder / "y.npy")
    return x, y, [np.load(folder / f"w{i}.npy") for i in range(2 * (len(SIZES) - 1))]


def _draw(folder: Path) -> None:
    draw = np.random.default_rng(0)
    np.save(folder / "x.npy", draw.standard_normal((EXAMPLES, SIZES[0]), np.float32))
    np.save(folder / "y.npy", draw.integers(0, SIZES[-1], EXAMPLES))
    for i, (before, after) in enumerate(pairwise(SIZES)):
        weight = draw.standard_normal((after, before), np.float32) / np.sqrt(np.float32(before))
        np.save(folder / f"w{2 * i}.npy", weight)
        np.save(folder / f"w{2 * i + 1}.npy", np.zeros(after, np.float32))


def _batches(array: np.ndarray) -> list[np.ndarray]:
    return [array[i : i + BATCH] for i in range(0, EXAMPLES, BATCH)]


def _glenside(folder: Path, threads: int, plain: bool = False) -> Steps:
    import glenside as gl
    from glenside.gradients.training import NEXT

    x, y, weights = _examples(folder)
    b = gl.Builder("perceptron")
    value = b.input("x", (BATCH, SIZES[0]))
    for i in range(len(SIZES) - 1):
        w, c = (b.constant(f"w{n}", weights[n].shape, value=weights[n]) for n in (2 * i, 2 * i + 1))
        value = b.linear(value, w, c, name=f"layer{i + 1}")
        value = b.relu(value) if i + 2 < len(SIZES) else value
    step = gl.training_step(b.finish(value), "softmax-cross-entropy", gl.SGD(str(RATE)))
    f = gl.compile(step.program, "none", machine="plain" if plain else "native")
    names = [t.name for t in step.state]
    assert step.program.signature.outputs == ("loss", *(f"{name}{NEXT}" for name in names)), "as they are given below"
    states = [f.results(), f.results()]
    for array, name in zip(states[0][1:], names, strict=True):
        array[...] = step.initial[name]
    data = list(zip(_batches(x), _batches(y), strict=True))

    def steps(count: int) -> float:
        for images, labels in data[:count]:
            (_, *now), after = states
            f({"x": images, "labels": labels, **dict(zip(names, now, strict=True))}, out=after, threads=threads)
            states.reverse()
        return float(states[0][0])

    return steps


def _numpy(folder: Path, _: int) -> Steps:
    x, y, weights = _examples(folder)
    data = list(zip(_batches(x), _batches(y), strict=True))
    rows, last = np.arange(BATCH), len(SIZES) - 2

    def step(images: np.ndarray, labels: np.ndarray) -> float:
        values = [images]
        for i in range(last + 1):
            made = values[-1] @ weights[2 * i].T
            made += weights[2 * i + 1]
            values.append(np.maximum(made, 0, out=made) if i < last else made)
        logits = values.pop()
        logits -= logits.max(1, keepdims=True)
        shares = np.exp(logits)
        sums = shares.sum(1, keepdims=True)
        loss = float(np.mean(np.log(sums[:, 0]) - logits[rows, labels]))
        shares /= sums
        shares[rows, labels] -= 1
        g = np.multiply(shares, np.float32(1 / BATCH), out=shares)
        for i in range(last, -1, -1):
            of_weight, of_bias = g.T @ values[i], g.sum(0)
            if i:
                g = (g @ weights[2 * i]) * (values[i] > 0)
            weights[2 * i] -= np.float32(RATE) * of_weight
            weights[2 * i + 1] -= np.float32(RATE) * of_bias
        return loss

    return lambda count: [step(*pair) for pair in data[:count]][-1]


def _torch(folder: Path, threads: int, compiled: bool = False) -> Steps:
    import torch

    torch.set_num_threads(threads)
    x, y, weights = _examples(folder)
    modules: list[Any] = []
    for i, (before, after) in enumerate(pairwise(SIZES)):
        layer = torch.nn.Linear(before, after)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weights[2 * i]))
            layer.bias.copy_(torch.from_numpy(weights[2 * i + 1]))
        modules += [layer, torch.nn.ReLU()]
    model = torch.nn.Sequential(*modules[:-1])
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, fused=True)
    data = [(torch.from_numpy(a), torch.from_numpy(b)) for a, b in zip(_batches(x), _batches(y), strict=True)]

    def of_batch(images: Any, labels: Any) -> Any:
        return torch.nn.functional.cross_entropy(model(images), labels)

    measured = torch.compile(of_batch, mode="max-autotune-no-cudagraphs") if compiled else of_batch

    def steps(count: int) -> float:
        for images, labels in data[:count]:
            optimizer.zero_grad(set_to_none=True)
            loss = measured(images, labels)
            loss.backward()
            optimizer.step()
        return float(loss.detach())

    return steps


def _jax(folder: Path, _: int) -> Steps:
    import jax
    import jax.numpy as jnp

    x, y, weights = _examples(folder)

    def loss_of(state: Any, images: Any, labels: Any) -> Any:
        value = images
        for i in range(len(SIZES) - 1):
            value = value @ state[2 * i].T + state[2 * i + 1]
            value = jax.nn.relu(value) if i + 2 < len(SIZES) else value
        chosen = jnp.take_along_axis(jax.nn.log_softmax(value), labels[:, None], 1)
        return -chosen.mean()

    def step(state: Any, images: Any, labels: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(state, images, labels)
        return loss, [w - RATE * g for w, g in zip(state, gradients, strict=True)]

    run = jax.jit(step, donate_argnums=0)
    state = [jnp.asarray(w) for w in weights]
    data = [(jax.device_put(a), jax.device_put(b)) for a, b in zip(_batches(x), _batches(y), strict=True)]
    jax.block_until_ready(data)

    def steps(count: int) -> float:
        nonlocal state
        for images, labels in data[:count]:
            loss, state = run(state, images, labels)
        jax.block_until_ready(state)
        return float(loss)

    return steps


_BEGIN: dict[str, Callable[[Path, int], Steps]] = {
    GLENSIDE: _glenside,
    "PyTorch": _torch,
    "PyTorch compiled": lambda folder, threads: _torch(folder, threads, compiled=True),
    "JAX": _jax,
    "numpy": _numpy,
    PLAIN: lambda folder, threads: _glenside(folder, threads, plain=True),
}


def entrant(name: str, folder: Path, threads: int) -> None:
    """Serves an entrant in its process: answers each line, a number of steps, with the seconds and the last loss."""
    steps = _BEGIN[name](folder, threads)
    print("ready", flush=True)
    for line in sys.stdin:
        begin = time.perf_counter()
        loss = steps(int(line))
        print(json.dumps([time.perf_counter() - begin, loss]), flush=True)


class _Process:
    """An entrant in its own process, on a given number of processors."""

    def __init__(self, name: str, folder: Path, threads: int) -> None:
        environment = dict(os.environ, OPENBLAS_NUM_THREADS=str(threads), OMP_NUM_THREADS=str(threads))
        for setting in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # OpenBLAS chooses for this processor
            environment.pop(setting, None)
        command = [sys.executable, "-m", "benchmarks.bench_training", "--entrant", name, str(folder), str(threads)]
        here = sorted(os.sched_getaffinity(0))[:threads]
        self.name = name
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            preexec_fn=lambda: os.sched_setaffinity(0, here),
        )
        self._line()  # it is ready
        self._still()

    def _still(self) -> None:
        """Stops the process, once the threads of the entrant use no processor."""
        time.sleep(PAUSE)
        self.process.send_signal(signal.SIGSTOP)

    def _line(self) -> str:
        assert self.process.stdout is not None, "it has pipes"
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with {self.process.wait()}")
        return line

    def run(self, count: int) -> tuple[float, float]:
        """Returns the seconds of a number of steps, and the last loss."""
        assert self.process.stdin is not None, "it has pipes"
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        seconds, loss = json.loads(self._line())
        self._still()
        return seconds, loss

    def end(self) -> None:
        assert self.process.stdin is not None, "it has pipes"
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        self.process.wait()


@contextmanager
def _processes(names: list[str], folder: Path, threads: int) -> Iterator[list[_Process]]:
    with ExitStack() as stack:
        found = []
        for name in names:
            found.append(_Process(name, folder, threads))
            stack.callback(found[-1].end)
        yield found


def measure(folder: Path, threads: int, rounds: int) -> list[dict[str, Any]]:
    """Returns a row for each entrant. Plain loops run on one thread alone."""
    whole = EXAMPLES // BATCH
    names = [n for n, module in ENTRANTS.items() if not module or importlib.util.find_spec(module)]
    names = [n for n in names if threads == 1 or n != PLAIN]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    with _processes(names, folder, threads) as found:
        losses = {p.name: p.run(PLAIN_STEPS if p.name == PLAIN else whole)[1] for p in found}
        for number in range(rounds):
            for process in found:
                plain = process.name == PLAIN
                if plain and number:
                    continue
                taken, _ = process.run(PLAIN_STEPS if plain else whole)
                seconds[process.name].append(taken * (whole / PLAIN_STEPS if plain else 1))
    rows = []
    for name, own in seconds.items():
        if name != PLAIN and abs(losses[name] - losses[GLENSIDE]) > WRONG * losses[GLENSIDE]:
            raise RuntimeError(f"{name} has a loss of {losses[name]}, Glenside of {losses[GLENSIDE]}")
        ours = seconds[GLENSIDE]
        pairs = zip(own, ours, strict=True) if len(own) == len(ours) else [(own[0], statistics.median(ours))]
        ratio = statistics.median(a / b for a, b in pairs)
        middle = statistics.median(own)
        row = {"threads": threads, "entrant": name, "epoch s": f"{middle:.4f}", "least s": f"{min(own):.4f}"}
        rows.append(
            {
                **row,
                "over Glenside": f"{ratio:.2f}",
                "least over least": f"{min(own) / min(ours):.2f}",
                "loss": f"{losses[name]:.6f}",
            }
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Measure on one thread and on two."""
    if sys.argv[1:2] == ["--entrant"]:
        entrant(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
        return
    rounds = int(sys.argv[1]) if sys.argv[1:] else ROUNDS
    for name, module in ENTRANTS.items():
        if module and not importlib.util.find_spec(module):
            print(f"{name} takes no part: pip install {module}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        _draw(Path(folder))
        rows = [row for threads in (1, 2) for row in measure(Path(folder), threads, rounds)]
    with (RESULTS / "bench_training.csv").open("w", newline="", encoding="utf-8") as file:
        file.write(f"# {os.cpu_count()} processors, {EXAMPLES:,} examples in batches of {BATCH:,}\n")
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
