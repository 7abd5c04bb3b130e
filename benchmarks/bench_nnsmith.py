"""Compares compiled random models of NNSmith, a generator by other authors, with the interpreter and onnxruntime.

    python benchmarks/bench_nnsmith.py write MODELS --count 1000 --seed 1  # with nnsmith, torch, onnx
    python benchmarks/bench_nnsmith.py compare MODELS benchmarks/results/bench_nnsmith.csv

NNSmith 0.1.0 needs one setting of a current PyTorch, export by tracing, which `write` sets. Each model is loaded,
compiled for a machine that this computer has, with 1 to 3 threads, and run on random inputs. Models that onnxruntime
runs are compared with it too. `compare` continues with the models that its file does not have yet.
"""

from __future__ import annotations

import argparse
import csv
import random
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

COLUMNS = ("model", "machine", "threads", "verdict", "detail")


def write(folder: Path, count: int, seed: int) -> None:
    """Writes random models, each named by its seed."""
    import numpy as np
    import onnx
    import torch

    warnings.filterwarnings("ignore")
    traced = torch.onnx.export
    torch.onnx.export = lambda *args, **options: traced(*args, **options, dynamo=False)
    from nnsmith.abstract.extension import activate_ext  # type: ignore[import-not-found]
    from nnsmith.graph_gen import model_gen  # type: ignore[import-not-found]
    from nnsmith.materialize import Model  # type: ignore[import-not-found]
    from nnsmith.narrow_spec import auto_opset  # type: ignore[import-not-found]

    folder.mkdir(parents=True, exist_ok=True)
    kind = Model.init("onnx", backend_target="cpu")
    kind.add_seed_setter()
    operators = auto_opset(kind, None)
    activate_ext(opset=operators, factory=None)
    written, failed = 0, Counter[str]()
    while written < count:
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        try:
            drawn = model_gen(
                operators, "symbolic-cinit", seed=seed, max_nodes=random.choice((3, 5, 8, 12)), timeout_ms=5000
            )
            onnx.save(kind.from_gir(drawn.make_concrete()).native_model, folder / f"{seed}.onnx")
            written += 1
        except Exception as error:  # the generator's own: no solution in time, or an operator that cannot be exported
            failed[f"{type(error).__name__}: {error}"[:100]] += 1
        seed += 1
    print(f"{written} models written, {sum(failed.values())} not: {dict(failed)}")


def compared(path: Path) -> dict[str, Any]:
    """Compiles and runs one model; returns its row."""
    import numpy as np

    import glenside as gl
    from glenside.fuzzing.compiling import machines
    from glenside.fuzzing.oracle import Expected, values_of
    from glenside.importers.onnx.sessions import CannotRun, Session
    from glenside.ir.operand import arrays

    pick = random.Random(path.stem)
    machine, threads = pick.choice(machines()), pick.choice((1, 1, 2, 3))
    row: dict[str, Any] = {"model": path.stem, "machine": machine, "threads": threads, "detail": ""}
    try:
        program = gl.load(path)
        values = values_of(program, pick.randrange(1 << 30))
        expected = Expected(program, values, 0)
        function = gl.compile(program, pick.choice((None, gl.CPU())), machine=machine)
        given = {buffer.name: values[buffer.name] for buffer in function.inputs}
        if said := expected.difference(arrays(function(given, threads=threads))):
            return {**row, "verdict": "compiled code differs", "detail": said}
        try:
            session = Session(path.read_bytes(), str(path), threads=1, seconds=30)
            found = session.run({name: values[name] for name in program.inputs})
        except (CannotRun, gl.GlensideError) as error:
            return {**row, "verdict": "right; not run by onnxruntime", "detail": str(error)[:120]}
        if said := expected.difference([np.asarray(a) for a in found]):
            return {**row, "verdict": "onnxruntime differs", "detail": said}
        return {**row, "verdict": "right"}
    except gl.GlensideError as error:
        return {**row, "verdict": "refused", "detail": str(error)[:200]}
    except Exception as error:
        return {**row, "verdict": "crash", "detail": f"{type(error).__name__}: {error}"[:200]}


def compare(folder: Path, output: Path) -> None:
    """Compares each model of a folder; writes a row as soon as it is known."""
    known = []
    if output.exists():
        with output.open(encoding="utf-8") as file:
            known = list(csv.DictReader(line for line in file if not line.startswith("#")))
    done = {row["model"] for row in known}
    with output.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if not known:
            writer.writeheader()
        for path in sorted(folder.glob("*.onnx"), key=lambda path: int(path.stem)):
            if path.stem not in done:
                row = compared(path)
                writer.writerow(row)
                file.flush()
                known.append(row)
    print(Counter(row["verdict"] for row in known))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    writing = steps.add_parser("write")
    writing.add_argument("folder", type=Path)
    writing.add_argument("--count", type=int, default=1000)
    writing.add_argument("--seed", type=int, default=1)
    comparing = steps.add_parser("compare")
    comparing.add_argument("folder", type=Path)
    comparing.add_argument("output", type=Path)
    arguments = parser.parse_args()
    if arguments.step == "write":
        write(arguments.folder, arguments.count, arguments.seed)
    else:
        compare(arguments.folder, arguments.output)


if __name__ == "__main__":
    main()
