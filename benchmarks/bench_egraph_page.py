"""Times the page of an e-graph in headless Chromium, by the size of the e-graph.

    python benchmarks/bench_egraph_page.py benchmarks/results/bench_egraph_page.csv

E-graphs are drawn: 100 to 100,000 e-nodes over the language's operators, two e-nodes for each e-class, five iterations.
The last one is that of MobileNetV1 on a 64x64 array. Columns:

- `bytes`: size of the page.
- `record`, `page`: processor seconds of Python, for the record of the e-graph and for the page.
- `open`: seconds from the start of loading to the first picture, by the clock of the page.
- `expand`, `search`, `slide`: seconds from a click to the next picture; medians of five.
"""

from __future__ import annotations

import argparse
import csv
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

import glenside as gl
from glenside.egraph.encode import MADE, WRITTEN
from glenside.egraph.search import program_snapshot
from glenside.egraph.snapshot import ENode, Snapshot
from glenside.ir.term import postorder
from glenside.report.egraph_record import priced
from glenside.report.egraph_view import EGraphView

SIZES = (100, 1_000, 10_000, 100_000)
ITERATIONS = 5
_READY = (
    "const done = arguments[0]; viewer.ready.then(() => requestAnimationFrame(() => done(performance.now() / 1e3)));"
)
_TIMED = """
  const done = arguments[0];
  const from = performance.now();
  (() => {{ {} }})();
  viewer.ready.then(() => requestAnimationFrame(() => done((performance.now() - from) / 1e3)));"""
_STEPS = {
    "expand": "viewer.widen()",
    "search": "const found = viewer.model.search('pad'); viewer.go(found[found.length >> 1].eclass)",
    "slide": f"viewer.moveTo(viewer.walk.iteration === {ITERATIONS} ? 2 : {ITERATIONS})",
}


def drawn(size: int, seed: int = 0) -> EGraphView:
    """Builds an e-graph of `size` e-nodes; each class reads classes a little further on, so that
    it is deep and wide.
    """
    draw = random.Random(seed)
    leaf = gl.parse("(access-tensor x)", shapes={"x": (4, 6)})
    known = program_snapshot(list(postorder(leaf.term)))
    count = size // 2
    nodes, owner = [known.nodes[0]], [count - 1]
    written, made, choice = [(count - 1, "access-tensor", ("x",))], [], {count - 1: 0}
    for c in range(count - 1):
        for second in (False, True):
            child = min(count - 1, c + draw.randint(1, 40))
            name, attributes = ("access-pad", ("zero-padding", 0, c, 0)) if second else ("access-flip", (c % 2,))
            if second:
                made.append((c, name, "flips-add-up", draw.randint(1, ITERATIONS), child, attributes, child))
            else:
                written.append((c, name, attributes, child))
                choice[c] = len(nodes)
            nodes.append(ENode(name, attributes, (child,)))
            owner.append(c)
    facts = {MADE: tuple(made), WRITTEN: tuple(written)}
    snapshot = Snapshot(tuple(nodes), tuple(owner), (known.types[0],) * count, (0,), known.tensors, facts)
    costs = priced(snapshot, gl.SystolicArray(64, 64).prices)
    return EGraphView(snapshot, choice, costs=costs, title=f"{size:,} e-nodes")


def mobilenet() -> EGraphView:
    result = gl.optimize(gl.models.load("mobilenet-v1"), gl.SystolicArray(64, 64), trace=True, verify=False)
    return result.view


def browser() -> Any:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument("--window-size=1400,900")
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.set_script_timeout(300)
    return driver


def measured(name: str, make: Callable[[], EGraphView], driver: Any, folder: Path) -> dict[str, Any]:
    view = make()
    started = time.process_time()
    record = view.record
    between = time.process_time()
    path = folder / "e.html"
    path.write_text(view.page(), encoding="utf-8")
    ended = time.process_time()
    opens = []
    for _ in range(3):
        driver.get("about:blank")
        driver.get(path.as_uri())
        opens.append(driver.execute_async_script(_READY))
    steps = {}
    for step, script in _STEPS.items():
        if step == "search" and not any("pad" in text for text in record["patterns"]):
            continue
        times = [driver.execute_async_script(_TIMED.format(script)) for _ in range(5)]
        steps[step] = round(statistics.median(times), 3)
    return {
        "e-graph": name,
        "e-nodes": view.snapshot.e_nodes,
        "e-classes": view.snapshot.e_classes,
        "bytes": path.stat().st_size,
        "record": round(between - started, 2),
        "page": round(ended - between, 2),
        "open": round(statistics.median(opens), 3),
        **steps,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("csv", type=Path)
    results = parser.parse_args().csv
    cases = {f"drawn {size}": lambda size=size: drawn(size) for size in SIZES} | {"mobilenet-v1 64x64": mobilenet}
    driver = browser()
    try:
        with tempfile.TemporaryDirectory() as folder:
            rows = [measured(name, make, driver, Path(folder)) for name, make in cases.items()]
        version = driver.capabilities["browserVersion"]
    finally:
        driver.quit()
    with results.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*rows[0], f"2 cores, headless Chromium {version}"])
        writer.writerows(row.values() for row in rows)
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
