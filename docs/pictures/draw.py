"""The pictures of the README, drawn again: python docs/pictures/draw.py, from the root of the repository.

Everything in them is found by the searches below. The same versions draw the same bytes.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

import glenside as gl
from glenside.report.egraph_picture import Picture
from glenside.report.network_picture import layout_picture
from glenside.report.plots import front_figure, write_figure
from glenside.report.tile_picture import layer_picture

HERE = Path(__file__).parent
LARGEST = 100_000  # bytes


def egraph() -> str:
    """A small convolution whose product is cut into tiles in several ways."""
    b = gl.Builder("a small convolution")
    x = b.conv(b.input("x", (1, 3, 4, 3)), b.constant("w", (2, 3, 2, 2)), name="conv")
    result = gl.optimize(b.finish(x), gl.SystolicArray(6, 2), blocking="unrolled-tiles")
    return Picture(result.view.record, most=14).svg()


def tile() -> str:
    """A depthwise layer, for which an array of 64 x 64 is all but empty as it stands."""
    return layer_picture(gl.optimize(gl.models.mobilenet_v1(), gl.SystolicArray(64, 64)), "dw1")


def layouts() -> str:
    """A residual block between two layouts."""
    b = gl.Builder("a residual block")
    x = b.input("x", (1, 8, 28, 28))
    y = b.relu(b.conv(x, b.constant("w1", (8, 8, 3, 3)), padding=1, name="first"))
    y = b.conv(y, b.constant("w2", (8, 8, 3, 3)), padding=1, name="second")
    return layout_picture(gl.optimize(b.finish(b.relu(b.add(x, y))), gl.ConvolutionUnit("nhwc")))


def front(path: Path) -> None:
    """What two layers trade on an npu: cycles of each mapping against the bytes that it moves."""
    network = gl.models.mobilenet_v1()
    result = gl.optimize(network, gl.NPU(64), verify=False)
    result.report.layers[:] = [row for row in result.report.layers if row.name in ("dw1", "dw2")]
    with matplotlib.rc_context({"figure.facecolor": "white", "savefig.facecolor": "white", "svg.fonttype": "path"}):
        write_figure(front_figure(result.report), str(path))


def main() -> None:
    """Draw all of them, and refuse what would be slow to load."""
    for name, drawn in (("egraph", egraph), ("tile", tile), ("layouts", layouts)):
        (HERE / f"{name}.svg").write_text(drawn(), encoding="utf-8")
    front(HERE / "front.svg")
    for path in sorted(HERE.glob("*.svg")):
        size = path.stat().st_size
        print(f"{path.name:<14}{size:>8,} bytes")
        assert size < LARGEST, f"{path.name} is larger than {LARGEST:,} bytes"


if __name__ == "__main__":
    main()
