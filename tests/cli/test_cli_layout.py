"""Tests `glenside layout`: its output, its files, and the message for an unknown unit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run

import glenside as gl
from glenside.ir.errors import BadInput
from glenside.ir.rearrangement import of_transpose
from glenside.ir.term import Term, constants_under, postorder

CONV = """(input x (shape 1 5 7 4)) (constant w (shape 3 4 2 2))
(compute dot-product (access-cartesian-product
  (access-windows (access (access-transpose (access-transpose (compute relu (access-transpose (access-tensor x)
    (list 0 3 1 2))) (list 0 2 3 1)) (list 0 3 1 2)) 1) (shape 4 2 2) (shape 1 1 1))
  (access (access-tensor w) 1)))"""


def _moves(term: Term) -> bool:
    return (
        term.operator.name == "access-transpose"
        and not of_transpose(term.children[0].access.dims, term.attributes[0]).is_identity  # type: ignore[arg-type]
    )


@pytest.fixture
def network(tmp_path: Path) -> Path:
    path = tmp_path / "conv.glenside"
    path.write_text(CONV)
    return path


def test_the_command_prints_reports_and_writes_the_program(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, out = tmp_path / "report.json", tmp_path / "out.glenside"
    assert run("layout", network, "--json", report, "-o", out) == 0
    content = json.loads(report.read_text())
    printed = capsys.readouterr().out
    sizes = content["copies"]["bytes"]
    inside = sizes["as written"]["inside"]
    assert inside > 0 == sizes["chosen"]["inside"]
    assert f"{inside:,} bytes before, 0 bytes after" in printed
    assert content["checked"] == "exact"
    found = gl.load(out)
    assert "product-unit" in {t.operator.name for t in postorder(found.term)}
    constant = constants_under(found.term)
    assert not any(_moves(t) for t in postorder(found.term) if not constant[t])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--unit", "nwhc"], "a layout is nhwc, nchw, any"),
        (["--unit", "nchw2c"], "at least 4 channels"),
        (["--loads", "foo"], "loads are none, runs, all, got 'foo'"),
        (["--stores", "foo"], "stores are none, runs, all, got 'foo'"),
    ],
)
def test_a_unit_that_there_is_not_is_said_in_a_sentence(
    network: Path, options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("layout", network, *options) == 2
    printed = capsys.readouterr()
    assert sentence in " ".join(printed.err.split())
    assert "Traceback" not in printed.err
    assert printed.out == ""
    with pytest.raises(BadInput, match=r"^(a layout is|loads are|stores are) "):
        gl.ConvolutionUnit(**{"layout" if k == "--unit" else k[2:]: v for k, v in [options]})
