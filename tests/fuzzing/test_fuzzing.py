"""Tests the fuzzer: generated cases, distinguishing and shrinking failures, and a short run on the package itself."""

from __future__ import annotations

import ast
import json
import random
import runpy
import shutil
from collections import Counter
from pathlib import Path

import own_doors  # noqa: F401 (it registers doors)
import pytest
from command_line import completed
from fuzzing import Fuzzing
from planted_faults import FAULTS

import glenside as gl
from glenside.fuzzing import DOORS, Case, Verdict, chosen_doors, visited
from glenside.fuzzing.child import Child
from glenside.fuzzing.corpus import Corpus
from glenside.fuzzing.drawing import drawn_case
from glenside.fuzzing.generate import Generator
from glenside.fuzzing.leaves import Settings
from glenside.fuzzing.models import Model
from glenside.fuzzing.searching import TARGETS
from glenside.fuzzing.shrinking import shrunk
from glenside.ir.dtypes import DTYPES
from glenside.ir.errors import BadInput
from glenside.ir.operator import COMPUTES, OPERATORS
from glenside.ir.program import Program
from glenside.ir.term import postorder
from glenside.ir.text import parse, print_program
from glenside.ir.types import AccessType
from glenside.targets.registry import TARGETS as REGISTERED

CORPUS = Path(__file__).parent / "corpus"
OWN = [door for name, door in DOORS.items() if not name.startswith("own-")]
SMALL = "(input x (shape 2 3) float32)\n(compute exp (access-tensor x))"


def test_every_record_and_dtype_and_kind_of_shape_is_drawn() -> None:
    records, dtypes, ranks, sizes, results = Counter[str](), set[str](), set[int](), set[int](), 0
    for seed in range(900):
        term = Generator(random.Random(seed), Settings(opaque=seed % 5 == 0)).term()
        results += not isinstance(term.type, AccessType)
        for part in postorder(term):
            name = part.operator.name
            records[str(part.attributes[0]).strip("()").split(" ")[0] if name == "compute" else name] += 1
            if isinstance(part.type, AccessType):
                dtypes.add(part.access.dtype)
                ranks.add(part.access.rank)
                sizes.update(part.access.dims)
    drawn = {*records} | {"compute", "opaque-pointwise", "opaque-items"}  # of the last two few draws are legal
    assert OPERATORS.keys() | COMPUTES.keys() <= drawn
    assert dtypes == {*DTYPES}
    assert ranks >= {*range(7)}
    assert sizes >= {0, 1, 2, 3, 5, 512, 1024}
    assert results > 60


def test_a_seed_draws_the_same_case() -> None:
    for door in OWN:
        first, again = (drawn_case(random.Random("7"), door, []) for _ in range(2))
        assert first == again


def test_programs_of_text_are_mutated() -> None:
    kept = [Case("program", SMALL)]
    texts = [drawn_case(random.Random(seed), DOORS["text"], kept).text for seed in range(40)]
    assert any("compute exp" in text and text.strip() != SMALL for text in texts)


def test_models_of_every_recipe_and_version_are_drawn_and_valid() -> None:
    onnx = pytest.importorskip("onnx")
    from glenside.fuzzing.onnx_recipes import RECIPES, drawn_model

    drawn, versions, valid = set[str](), set[int](), 0
    for seed in range(400):
        text = drawn_model(random.Random(seed))
        model = Model.of(text)
        assert model.text() == text
        drawn |= {node[0] for node in model.nodes}
        versions.add(model.opset)
        try:
            onnx.checker.check_model(model.proto(), full_check=True)
            valid += 1
        except Exception:
            pass
    assert valid > 380
    assert versions == {*range(7, 23)}
    assert len(RECIPES.keys() - drawn) <= 6


def test_a_model_is_shrunk() -> None:
    pytest.importorskip("onnx")
    from glenside.fuzzing.onnx_recipes import drawn_model

    def fails(case: Case) -> bool:
        return any(node[0] == "Softmax" for node in Model.of(case.text).nodes)

    texts = (drawn_model(random.Random(seed)) for seed in range(1000))
    case = next(c for c in (Case("model", t) for t in texts) if fails(c) and len(Model.of(c.text).nodes) > 4)
    assert [node[0] for node in Model.of(shrunk(case, fails, 20.0).text).nodes] == ["Softmax"]


def test_every_target_has_a_door() -> None:
    assert TARGETS.keys() == REGISTERED.keys()


_WINDOWS = """
(compute dot-product (access-cartesian-product
  (access-squeeze (access (access-reshape
    (access-windows (access-windows (access (full (shape 3 2 1 7 9) 1 float32) 2) (shape 1 3 5) (shape 1 1 1))
      (shape 1 1 1) (shape 1 1 2))
    (access-shape (shape 3 2 1 5 5 1 3 3) (shape))) 5) 2)
  (access (full (shape 0 0 1 3 3) 1 float32) 2)))
"""
_TUPLE = """
(input x (shape 2 3 1) float32)
(tuple-get-item (construct-tuple (compute relu (access (access-tensor x) 3)) (full (shape 1 3 2) 1 int16)) 0)
"""
_KNOWN_INDEX = """(input x (shape 2 1) uint16)
(constant i (shape 1 1) uint8)
(access-gather (access-tensor x) (access-tensor i) 0)"""
_SIZE = Model(15, {"x": ("bool", (1, 1))}, nodes=[("Size", "", ["x"], ["y"], {})], outputs=["y"]).text()


_ACOS = "(input x (shape 3 3) float64)\n(compute acos (access-tensor x))"


def test_counts_of_every_dtype_compile() -> None:
    counts = [f"(iota {2 if dtype in ('int2', 'int1') else 3} {dtype})" for dtype in DTYPES if dtype != "bool"]
    outcome = visited(f"(construct-tuple {' '.join(counts)})", "compile", 1)
    assert outcome.verdict is Verdict.PASSED, outcome.detail


@pytest.mark.parametrize(
    ("door", "text"),
    [
        ("onnx", _ACOS),
        ("rules", _WINDOWS),
        ("optimize", _WINDOWS),
        ("layout", _WINDOWS),
        ("layout", _TUPLE),
        ("layout", "(input x (shape 3 1 2) float32)\n(compute dot-product (access (access-tensor x) 1))"),
        ("onnx", "(input x (shape 1 1) bool)\n(cast (access-tensor x) uint64)"),
        ("onnx", _KNOWN_INDEX),
        ("onnx", "(input x (shape) uint8)\n(construct-tuple (access-tensor x) (full (shape 0 0) 1 bfloat16))"),
        ("import", _SIZE),
    ],
)
def test_what_once_failed_passes(door: str, text: str) -> None:
    if missing := DOORS[door].missing():
        pytest.skip(f"it takes {missing}")
    for seed in range(2):
        outcome = visited(text, door, seed)
        assert outcome.verdict is Verdict.PASSED, outcome.detail


@pytest.fixture
def child(tmp_path: Path) -> Child:
    return Child(2.0, 3 << 30, tmp_path)


@pytest.mark.slow
def test_failures_of_every_kind_are_told_apart(child: Child) -> None:
    def outcome(door: str, seed: int = 0, text: str = SMALL) -> tuple[Verdict, str]:
        found = child.visit(Case("program", text, seed), DOORS[door])
        return found.verdict, found.place

    cast = "(input x (shape 2) float32)\n(cast (access-tensor x) int8)"
    assert outcome("own-wrong") == (Verdict.PASSED, "")
    assert outcome("own-wrong", text=cast)[0] is Verdict.WRONG
    assert outcome("own-crash")[0] is Verdict.CRASH
    assert outcome("own-fault")[1].startswith("signal 11")
    assert outcome("own-hang")[0] is Verdict.HANG
    assert outcome("own-refusals", 0) == (Verdict.REFUSED, "this is expected, for N tensors")
    assert outcome("own-refusals", 1)[0] is Verdict.REFUSAL
    assert outcome("own-refusals", 2)[0] is Verdict.REFUSAL  # it names a type of Python
    assert outcome("own-runtime") == (Verdict.REFUSED, "a library ended")
    assert outcome("text") == (Verdict.PASSED, "")  # after all that
    child.end()


@pytest.mark.parametrize("name", ["exp", "argsort", "access-gather", "linear-map", "access-windows"])
def test_a_failure_is_shrunk_to_a_few_lines(name: str) -> None:
    def fails(case: Case) -> bool:
        term = parse(case.text).term
        return any(name in str(t.attributes) or t.operator.name == name for t in postorder(term))

    found = 0
    for seed in range(2000):
        case = Case("program", print_program(Generator(random.Random(seed)).program()))
        if fails(case) and sum(1 for t in postorder(parse(case.text).term) if t.children) > 5:
            small = shrunk(case, fails, 20.0)
            assert fails(small)
            assert sum(1 for t in postorder(parse(small.text).term) if t.children) <= 3, small.text
            assert len(small.text.splitlines()) <= 8, small.text
            found += 1
        if found == 2:
            break
    assert found


def test_sizes_are_shrunk_to_what_matters() -> None:
    text = "(input x (shape 512 40) float32)\n(compute exp (access-transpose (access (access-tensor x) 1) (list 1 0)))"
    small = shrunk(Case("program", text), lambda case: visited(case.text, "own-wide").failed, 20.0)
    sizes = [size for t in postorder(parse(small.text).term) for size in t.access.dims]
    assert max(sizes) == 9
    assert sum(size > 1 for size in sizes) <= 2


def test_what_is_found_is_kept_with_a_test(tmp_path: Path) -> None:
    report = gl.fuzz(2, 3, ["own-wrong", "text"], corpus=tmp_path, cases=40)
    assert not report.ok
    failure = report.failures[0]
    assert failure.outcome.verdict is Verdict.WRONG
    assert failure.count > 1
    assert len(failure.case.text.splitlines()) <= 4
    assert report.doors["text"].failed == 0
    assert report.reached > 50
    assert len(list(tmp_path.glob("*.glenside"))) == report.added > 5
    assert all(parse(case.text) for case in Corpus(tmp_path).cases)
    written = runpy.run_path(failure.test)
    with pytest.raises(AssertionError, match="it differs"):
        written["test_own_wrong"]()


def test_a_run_of_so_many_cases_is_repeatable() -> None:
    first, again = (gl.fuzz(2, 5, ["own-wrong"], cases=5).as_dict() for _ in range(2))
    assert first["failures"]
    assert [f["case"] for f in first["failures"]] == [f["case"] for f in again["failures"]]


def test_the_command(tmp_path: Path) -> None:
    said = completed("fuzz", "--doors", "text", "--cases", 15, "--seed", 1, "--corpus", "c", folder=tmp_path)
    assert said.returncode == 0
    assert "15 cases" in said.stdout
    said = completed("fuzz", "--doors", "own-crash", "--cases", 3, "--json", folder=tmp_path)
    found = json.loads(said.stdout)
    assert said.returncode == 1
    assert found["failures"][0]["kind"] == "crash"
    assert found["failures"][0]["place"].startswith("KeyError")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--doors", "compil"], "did you mean"),
        (["--doors", ""], "a door is one of"),
        (["--minutes", "0"], "minutes must be"),
        (["--minutes", "nan"], "minutes must be"),
        (["--jobs", "0"], "jobs must be"),
        (["--cases", "0"], "cases must be"),
        (["--corpus", "/dev/null"], "must be a folder"),
        (["--corpus", "/proc/nothere/x"], "cannot use the corpus"),
    ],
)
def test_bad_options(words: list[str], said: str, tmp_path: Path) -> None:
    found = completed("fuzz", *words, folder=tmp_path)
    assert (found.returncode, found.stdout) == (2, "")
    assert said in found.stderr


def test_a_door_is_named() -> None:
    with pytest.raises(BadInput, match="a door is one of"):
        chosen_doors(["nothing"])
    assert [door.name for door in chosen_doors("text,fold,text")] == ["text", "fold"]


def _kept(tmp_path: Path) -> Path:
    """Returns a copy of the corpus of the repository, to which a run may add."""
    return Path(shutil.copytree(CORPUS, tmp_path / "corpus"))


def test_there_are_a_hundred_planted_faults_and_each_changes_one_place() -> None:
    root = Path(__file__).parents[2]
    assert len(FAULTS) >= 100
    for name, (file, old, new, sentence) in FAULTS.items():
        text = (root / file).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{name}: {old!r} is {text.count(old)} times in {file}"
        ast.parse(text.replace(old, new))
        assert sentence


def test_the_corpus_of_the_repository_is_of_programs() -> None:
    found = Corpus._read(CORPUS)
    assert sum(isinstance(parse(case.text), Program) for case in found if case.form == "program") >= 10


def test_a_budget_of_time_at_every_door(tmp_path: Path) -> None:
    report = gl.fuzz(0.06, 0, [door.name for door in OWN], corpus=_kept(tmp_path))
    assert report.ok, str(report)


@pytest.mark.slow
def test_many_cases_at_every_door(tmp_path: Path, fuzzing: Fuzzing) -> None:
    minutes = fuzzing.seconds(600) / 60
    report = gl.fuzz(minutes, fuzzing.first(1), [door.name for door in OWN], corpus=_kept(tmp_path), jobs=2)
    assert report.ok, str(report)
