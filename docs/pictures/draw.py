"""Draws the pictures of the README again: python docs/pictures/draw.py, from the root of the repository.

Everything in them is found by the searches below. The same versions draw the same bytes.
"""

from __future__ import annotations

import base64
import shutil
import tempfile
from pathlib import Path

import matplotlib

import glenside as gl
from glenside.report.egraph_picture import Picture
from glenside.report.egraph_view import EGraphView
from glenside.report.network_picture import layout_picture
from glenside.report.plots import front_figure, write_figure
from glenside.report.tile_picture import layer_picture

HERE = Path(__file__).parent
LARGEST = 100_000  # bytes


def egraph() -> str:
    """Draws a small convolution whose product is cut into tiles in several ways."""
    b = gl.Builder("a small convolution")
    x = b.conv(b.input("x", (1, 3, 4, 3)), b.constant("w", (2, 3, 2, 2)), name="conv")
    result = gl.optimize(b.finish(x), gl.SystolicArray(6, 2), blocking="unrolled-tiles")
    return Picture(result.view.record, most=7).svg()


def tile() -> str:
    """Returns a depthwise layer, for which the baseline mapping leaves an array of 64 x 64 nearly empty."""
    return layer_picture(gl.optimize(gl.models.mobilenet_v1(), gl.SystolicArray(64, 64)), "dw1")


def layouts() -> str:
    """Draws a residual block between two layouts."""
    b = gl.Builder("a residual block")
    x = b.input("x", (1, 8, 28, 28))
    y = b.relu(b.conv(x, b.constant("w1", (8, 8, 3, 3)), padding=1, name="first"))
    y = b.conv(y, b.constant("w2", (8, 8, 3, 3)), padding=1, name="second")
    return layout_picture(gl.optimize(b.finish(b.relu(b.add(x, y))), gl.ConvolutionUnit("nhwc")))


def front(path: Path) -> None:
    """Draws the trade-off of a layer on an npu: cycles of each mapping against the bytes that it moves."""
    network = gl.models.mobilenet_v1()
    result = gl.optimize(network, gl.NPU(64), verify=False)
    result.report.layers[:] = [row for row in result.report.layers if row.name == "dw2"]
    with matplotlib.rc_context({"figure.facecolor": "white", "savefig.facecolor": "white", "svg.fonttype": "path"}):
        write_figure(front_figure(result.report), str(path))


def page(path: Path) -> None:
    """Draws the page of a layer's e-graph as a browser shows it, at an e-node of a rule. Needs
    Chromium and selenium.
    """
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    result = gl.optimize(gl.models.mobilenet_v1(), gl.SystolicArray(64, 64), trace=True)
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    wait = "const done = arguments[0]; viewer.ready.then(() => requestAnimationFrame(() => done()));"
    try:
        size = {"width": 1400, "height": 740, "deviceScaleFactor": 1.3, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "egraph.html"
            file.write_text(EGraphView.of(result, "dw2").page(), encoding="utf-8")
            browser.get(file.as_uri())
            browser.execute_async_script(wait)
            browser.execute_script("document.querySelector('.panel .member.chosen details').open = true")
            path.write_bytes(base64.b64decode(browser.get_screenshot_as_base64()))
    finally:
        browser.quit()


def main() -> None:
    """Draw all pictures, and refuse large files; the picture of the page requires a browser."""
    for name, drawn in (("egraph", egraph), ("tile", tile), ("layouts", layouts)):
        (HERE / f"{name}.svg").write_text(drawn(), encoding="utf-8")
    front(HERE / "front.svg")
    if shutil.which("chromium") and shutil.which("chromedriver"):
        page(HERE / "page.png")
    else:
        print("page.png is left as it is: there is no chromium with its chromedriver here")
    for path in sorted([*HERE.glob("*.svg"), *HERE.glob("*.png")]):
        size = path.stat().st_size
        print(f"{path.name:<14}{size:>8,} bytes")
        most = LARGEST * (4 if path.suffix == ".png" else 1)
        assert size < most, f"{path.name} is larger than {most:,} bytes"


if __name__ == "__main__":
    main()
