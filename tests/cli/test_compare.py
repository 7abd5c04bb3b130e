"""Tests `glenside compare`, `--explain`, the cache and the limits of a mapping on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run
from sweep_programs import sample_programs

from glenside.ir.files import load

SMALL = ("mobilenet-v1", "--array", "16x16", "--set", "resolution=32", "--set", "width=0.25")


@pytest.mark.slow
def test_compare_prints_both_and_draws_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for ending, start in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        plot = tmp_path / f"c.{ending}"
        assert run("compare", *SMALL, "--plot", plot, "--no-check") == 0
        assert plot.read_bytes().startswith(start)
    printed = capsys.readouterr().out
    assert "baseline" in printed
    assert "under the baseline, which takes" in printed
    assert "the gap 0" in printed
    assert "28 of 28 mapped" in printed
    assert run("compare", *SMALL, "--plot", tmp_path / "c.gif") == 2
    assert ".png, .svg or .pdf" in capsys.readouterr().err


@pytest.mark.slow
def test_the_report_of_a_comparison(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    assert run("compare", *SMALL, "--json", path, "--max-weight-growth", "9") == 0
    content = json.loads(path.read_text())
    for row in content["layers"]:
        baseline, chosen = (row["variants"][which]["measures"] for which in ("baseline", "chosen"))
        assert row["lower_bound"] + row["gap"] == chosen["cycles"] <= baseline["cycles"]
        assert chosen["weight bytes"] <= 9 * baseline["weight bytes"]
        assert row["plan"]["matrices"].keys() == {"groups", "m", "k", "n"}
        assert row["checked"] == "exact"
    for key in ("lower_bound", "gap", "macs"):
        assert content[key] == sum(row[key] for row in content["layers"])
    for which in ("baseline", "chosen"):
        for key, total in content["totals"][which].items():
            assert total == sum(row["variants"][which]["measures"][key] for row in content["layers"])


@pytest.mark.slow
def test_explain_traces_the_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.json"
    assert run("tensorize", *SMALL, "--explain", "--json", path, "--no-check") == 0
    assert "Trace of the rules" in capsys.readouterr().out
    rows = {row["name"]: row for row in json.loads(path.read_text())["layers"]}
    assert "windows-are-regrouped" in rows["dw1"]["rules"] or "groups-are-packed" in rows["dw1"]["rules"]
    assert all("product-is-loops-of-weight-tiles" in row["rules"] for row in rows.values())
    for row in rows.values():
        assert ("operands-are-swapped" in row["rules"]) or not row["plan"]["swapped"]


@pytest.fixture
def products(tmp_path: Path) -> Path:
    return Path(sample_programs(tmp_path)[0])


def test_a_second_run_is_the_same_from_the_cache(
    products: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = []
    for name in ("a", "b", "c"):
        out, path = tmp_path / f"{name}.glenside", tmp_path / f"{name}.json"
        more = ("--no-cache",) if name == "c" else ()
        assert run("tensorize", products, "--array", "16x16", "-o", out, "--json", path, *more) == 0
        outputs.append((out.read_bytes(), json.loads(path.read_text())))
    assert [content["search"]["cached"] for _, content in outputs] == [False, True, False]
    assert outputs[0][0] == outputs[1][0] == outputs[2][0]
    assert outputs[0][1]["layers"] == outputs[1][1]["layers"] == outputs[2][1]["layers"]
    assert "From the cache" in capsys.readouterr().out
    assert load(tmp_path / "b.glenside").layers.keys() == load(tmp_path / "a.glenside").layers.keys()


def test_a_broken_cache_is_a_note_and_no_error(
    own_cache: Path, products: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_cache.mkdir()
    for content in (b"garbage", b""):
        for path in own_cache.iterdir():
            path.unlink()
        (own_cache / "answers-1.sqlite").write_bytes(content)
        assert run("tensorize", products, "--array", "16x16", "--no-check") == 0
        errors = capsys.readouterr().err
        assert ("set aside" in errors) == bool(content)


BAD = {
    "objective twice": ("--objective cycles,cycles", "each may be given once"),
    "unknown objective": ("--objective joules", "one of cycles, bytes"),
    "no rows": ("--max-rows 0", "from 1 to 2147483647, got 0"),
    "growth": ("--max-weight-growth 0.5", "from 1 to 1e+06, got 0.5"),
    "mapping": ("--mapping worst", "best, baseline"),
    "method": ("--extract luck", "greedy"),
    "limits of slices": ("--max-rows 5 --blocking unrolled-tiles", "requires --blocking tile-loops"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_flags_are_one_sentence_and_status_2(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags, words = BAD[name]
    assert run("tensorize", *SMALL, *flags.split()) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_an_array_or_a_target_is_needed_and_not_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("compare", "mobilenet-v1") == 2
    assert run("compare", "mobilenet-v1", "--array", "4x4", "--target", "systolic-array:4x4") == 2
    assert run("compare", "mobilenet-v1", "--array", "5000x4") == 2
    assert "from 1 to 4096" in capsys.readouterr().err


def test_a_narrow_terminal_leaves_columns_out_and_cuts_nothing() -> None:
    import io

    from rich.console import Console

    import glenside as gl
    from glenside.cli.table import report_tables

    report = gl.optimize(gl.models.mobilenet_v1(0.25, 32), gl.SystolicArray(16, 16), verify=False).report
    for width in (80, 100, 160):
        for compare in (False, True):
            out = Console(file=io.StringIO(), width=width)
            out.print(*report_tables(report, width, compare=compare, every=True))
            assert isinstance(out.file, io.StringIO)
            lines = out.file.getvalue().splitlines()
            assert max(map(len, lines)) <= width
            assert any("operator" in line for line in lines[2:4]) == (width == 160)
            assert all(any(line.startswith(f" {row.name} ") for line in lines) for row in report.layers)
            assert all(any(f"{row.measures['cycles']:,}" in line for line in lines) for row in report.layers)


def test_equal_layers_are_one_row_unless_all_are_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import io

    from rich.console import Console

    import glenside as gl
    from glenside.cli.table import report_tables

    b = gl.Builder("deep")
    x = b.input("x", (4, 8))
    for i in range(5):
        x = b.linear(x, b.constant(f"w{i}", (8, 8)), name=f"a/rather/long/path/of/modules/number/{i}")
    gl.save(b.finish(b.linear(x, b.constant("last", (3, 8)), name="last")), tmp_path / "deep.glenside")
    totals = []
    for flags, rows in ((), 2), (("--all",), 6):
        asked = ("--array", "4x4", "--exact-order", "--no-check", "--json", tmp_path / "r.json", *flags)
        assert run("tensorize", tmp_path / "deep.glenside", *asked) == 0
        printed = capsys.readouterr().out
        lines = printed.splitlines()
        first, last = (number for number, line in enumerate(lines) if "───" in line)
        assert last - first == rows + 1
        assert ("/0, and 4 more" in printed) == ("x 5" in printed) == (rows == 2)
        assert len(json.loads((tmp_path / "r.json").read_text())["layers"]) == 6
        totals.append(lines[last + 1].split())
    assert totals[0] == totals[1]
    program = gl.load(tmp_path / "deep.glenside")
    report = gl.optimize(program, gl.SystolicArray(4, 4), exact_order=True, verify=False).report
    for compare in (False, True):
        out = Console(file=io.StringIO(), width=80)
        out.print(*report_tables(report, 80, compare=compare))
        assert isinstance(out.file, io.StringIO)
        lines = out.file.getvalue().splitlines()
        assert max(map(len, lines)) <= 80
        assert [line.split()[0] for line in lines if "/0" in line or "last" in line] == [
            "..th/of/modules/number/0",
            "last",
        ]
