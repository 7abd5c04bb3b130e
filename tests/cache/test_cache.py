"""Tests the cache: an entry is read back as written, also by two processes; a damaged entry gives a note, never an
answer.
"""

from __future__ import annotations

import hashlib
import json
import re
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from glenside.cache import Cache, CacheFull, key_of, store
from glenside.ir.errors import BadInput

LONG = "answer " * 10_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "answers.sqlite"


def test_what_goes_in_comes_out(path: Path) -> None:
    with Cache(path) as cache:
        assert cache.get("a") is None
        cache.put("a", LONG)
        cache.put("a", LONG + "!")
    with Cache(path) as cache:
        assert cache.get("a") == LONG + "!"
        assert len(cache) == 1
        cache.clear()
        assert len(cache) == 0


def test_keys_tell_their_parts_apart() -> None:
    keys = {key_of(a="x", b="y"), key_of(a="xb", b=""), key_of(a="y", b="x"), key_of(ab="xy"), key_of(a="x", b="y ")}
    assert len(keys) == 5
    assert key_of(a="x", b="y") == key_of(b="y", a="x")


def test_the_least_recently_used_go_first(path: Path) -> None:
    with Cache(path, limit=3_000) as cache:
        for i in range(6):
            cache.put(str(i), "".join(str(hash((i, j))) for j in range(100)))
            cache.get("0")
        assert 0 < cache.size <= 3_000
        assert cache.get("5") is not None
        assert cache.get("0") is not None
        assert cache.get("1") is None


@pytest.mark.parametrize("content", [b"garbage", b"SQLite format 3\0" + b"x" * 5_000])
def test_a_broken_file_is_set_aside_with_one_note(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    notes: list[str] = []
    with Cache(path, notes.append) as cache:
        assert cache.get("a") is None
        cache.put("a", "b")
        assert cache.get("a") == "b"
    assert len(notes) == 1
    assert "set aside" in notes[0]
    assert path.with_suffix(".corrupt").read_bytes() == content


def test_a_truncated_file_is_a_miss(path: Path) -> None:
    with Cache(path) as cache:
        for i in range(50):
            cache.put(str(i), LONG + str(i))
    path.write_bytes(path.read_bytes()[:3_000])
    notes: list[str] = []
    with Cache(path, notes.append) as cache:
        assert cache.get("7") is None
    assert len(notes) == 1


def test_another_table_is_set_aside(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE answers (something INTEGER)")
    notes: list[str] = []
    with Cache(path, notes.append) as cache:
        cache.put("a", "b")
        assert cache.get("a") == "b"
    assert len(notes) == 1


def test_a_wrong_checksum_is_a_miss(path: Path) -> None:
    with Cache(path) as cache:
        cache.put("a", LONG)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE answers SET checksum = 'no'")
    notes: list[str] = []
    with Cache(path, notes.append) as cache:
        assert cache.get("a") is None
    assert "cannot be read" in notes[0]


def test_a_folder_in_its_place_and_a_folder_that_cannot_be_made_are_notes(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "answers.sqlite"):
        notes: list[str] = []
        with Cache(path, notes.append) as cache:
            cache.put("a", "b")
            assert cache.get("a") is None
        assert len(notes) == 1


WRITER = """
import sys
from collections.abc import Callable
from pathlib import Path
from glenside.cache import Cache
with Cache(Path(sys.argv[1])) as cache:
    for i in range(100):
        cache.put(f"{sys.argv[2]} {i}", "x" * 5000 + str(i))
"""


def test_two_processes_write_at_once(path: Path) -> None:
    environment = {"PYTHONPATH": ":".join(p for p in sys.path if p)}
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, str(n)], stderr=subprocess.PIPE, env=environment)
        for n in range(2)
    ]
    assert [w.communicate()[1] for w in writers] == [b"", b""]
    with Cache(path) as cache:
        assert len(cache) == 200
        assert cache.get("1 99") == "x" * 5000 + "99"


FULL = """
import resource, signal, sys
from collections.abc import Callable
from pathlib import Path
from glenside.cache import Cache, CacheFull
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with Cache(Path(sys.argv[1])) as cache:
    cache.put("kept", "before")
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    import random
    for i in range(100):
        cache.put(str(i), "".join(chr(random.randrange(33, 1000)) for _ in range(20_000)))
"""


def test_a_file_that_cannot_grow_loses_nothing(path: Path) -> None:
    assert resource.RLIMIT_FSIZE
    environment = {"PYTHONPATH": ":".join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", FULL, path], stderr=subprocess.PIPE, env=environment, check=False)
    assert b"CacheFull" in done.stderr or b"cannot be written" in done.stderr, done.stderr
    with Cache(path) as cache:
        assert cache.get("kept") == "before"


class _Full:
    """A connection whose disk is full."""

    in_transaction = False

    def execute(self, statement: str, *_: object) -> object:
        raise sqlite3.OperationalError("database or disk is full")

    def close(self) -> None: ...


def test_a_full_disk_is_a_sentence(path: Path) -> None:
    cache = Cache(path)
    cache.close()
    cache._connection = _Full()  # type: ignore[assignment]
    with pytest.raises(CacheFull, match="--no-cache"):
        cache.put("a", "b")


@pytest.mark.slow
def test_a_second_answer_is_the_first(path: Path) -> None:
    import glenside as gl

    program = gl.models.mobilenet_v1(0.25, 32)
    with Cache(path) as cache:
        first = gl.optimize(program, gl.SystolicArray(16, 16), cache=cache)
        second = gl.optimize(program, gl.SystolicArray(16, 16), cache=cache)
        other = gl.optimize(program, gl.SystolicArray(16, 8), cache=cache, verify=False)
        assert len(cache) == 2
    assert (first.report.cached, second.report.cached, other.report.cached) == (False, True, False)
    assert str(first.program) == str(second.program)
    assert first.report.layers == second.report.layers
    assert first.cost == second.cost
    assert second.check().result == "exact"
    assert second.egraph.e_nodes == first.egraph.e_nodes


def test_an_answer_that_cannot_be_kept_is_still_given(path: Path) -> None:
    import glenside as gl

    cache = Cache(path)
    cache.close()
    cache._connection = _Full()  # type: ignore[assignment]
    cache.get = lambda _: None  # type: ignore[method-assign]
    text = "(compute dot-product (access-cartesian-product (access (access-tensor a) 1) (access (access-tensor b) 1)))"
    result = gl.optimize(gl.parse(text, shapes={"a": (3, 4), "b": (5, 4)}), gl.SystolicArray(4, 4), cache=cache)
    assert result.report.ok
    assert isinstance(result.not_kept, CacheFull)


SMALL = "(compute dot-product (access-cartesian-product (access (access-tensor a) 1) (access (access-tensor b) 1)))"
DAMAGES: dict[str, Callable[[str], str]] = {
    "no JSON": lambda _: "answer",
    "deep": lambda _: "[" * 100_000,
    "a list": lambda _: "[]",
    "no report": lambda text: json.dumps({"program": json.loads(text)["program"]}),
    "no program": lambda text: json.dumps({"report": json.loads(text)["report"], "program": 3}),
    "no layers": lambda text: text.replace('"layers": [{', '"layers": 3, "x": [{'),
    "words for a number": lambda text: text.replace('"e_nodes": ', '"e_nodes": "many", "x": '),
    "a true number": lambda text: text.replace('"macs": ', '"macs": true, "x": '),
    "another key": lambda text: text.replace('"e_nodes"', '"e_nodez"'),
    "an open program": lambda text: text.replace("(access-slice", "(access-slice (", 1),
    "another shape": lambda text: text.replace("2 0 3) 0)", "2 0 2) 0)", 1),
    "a wrong program": lambda text: re.sub(
        "access-tensor ([ab])", lambda m: f"access-tensor {'ba'[m[1] == 'b']}", text
    ),
    "an unknown tensor": lambda text: text.replace("access-tensor a", "access-tensor c", 1),
}
OF_FRONTS: dict[str, Callable[[str], str]] = {
    "no fronts": lambda text: json.dumps({**json.loads(text), "fronts": 3}),
    "no such term": lambda text: text.replace('"number": 0', '"number": 99'),
    "an open term": lambda text: text.replace('"terms": "', '"terms": "('),
}


@pytest.mark.parametrize(
    ("name", "target"),
    [
        *((name, "systolic-array:4x4") for name in DAMAGES),
        *(pytest.param(name, "npu:4x4", marks=pytest.mark.slow) for name in DAMAGES),
        *((name, "npu:4x4") for name in OF_FRONTS),
    ],
)
def test_an_answer_is_checked_before_it_is_believed(name: str, target: str, path: Path) -> None:
    import glenside as gl

    notes: list[str] = []
    program, on = gl.parse(SMALL, shapes={"a": (3, 4), "b": (3, 4)}), gl.parse_target(target)
    with Cache(path, note=notes.append) as cache:
        first = gl.optimize(program, on, cache=cache)
        assert cache._connection is not None
        (key,) = cache._connection.execute("SELECT key FROM answers").fetchone()
        kept = cache.get(key)
        assert kept is not None
        damaged = {**DAMAGES, **OF_FRONTS}[name](kept)
        assert damaged != kept
        cache.put(key, damaged)
        second = gl.optimize(program, on, cache=cache)
        assert not second.report.cached
        assert str(second.program) == str(first.program)
        assert "is not believed" in notes[0]
        assert gl.optimize(program, on, cache=cache).report.cached


def test_variants_that_code_is_made_of_are_not_searched_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import glenside as gl
    from glenside.cache import search_results

    program, target = gl.parse(SMALL, shapes={"a": (3, 4), "b": (3, 4)}), gl.NPU(4, 4)
    with Cache(path) as cache:
        first = gl.optimize(program, target, cache=cache)
        monkeypatch.setattr(
            search_results.Remembered, "_searched", property(lambda _: pytest.fail("it is searched again"))
        )
        second = gl.optimize(program, target, cache=cache)
    assert second.report.cached
    assert second.prepared is program
    assert {name: [*own] for name, own in second.answer.fronts.items()} == {
        name: [*own] for name, own in first.answer.fronts.items()
    }


@pytest.mark.parametrize("fails", [False, True])
def test_an_answer_that_is_given_on_while_it_is_checked_is_given_on_again(fails: bool, path: Path) -> None:
    """If the cached answer is wrong, a new one is computed, and the fault of the old one is not reported."""
    import glenside as gl

    program, target = gl.parse(SMALL, shapes={"a": (3, 4), "b": (3, 4)}), gl.NPU(4, 4)
    given: list[bool] = []

    def take(result: gl.Result) -> None:
        given.append(result.report.cached)
        if fails and result.report.cached:
            raise BadInput("it cannot be lowered")

    with Cache(path) as cache:
        gl.optimize(program, target, cache=cache)
        assert cache._connection is not None
        (key,) = cache._connection.execute("SELECT key FROM answers").fetchone()
        kept = cache.get(key)
        assert kept is not None
        cache.put(key, DAMAGES["a wrong program"](kept))
        found = gl.optimize(program, target, cache=cache, on_answer=take, meanwhile=True)
        assert given == [True, False]
        assert not found.report.cached
        given.clear()
        if fails:
            with pytest.raises(BadInput, match="it cannot be lowered"):
                gl.optimize(program, target, cache=cache, on_answer=take, meanwhile=True)
        else:
            assert gl.optimize(program, target, cache=cache, on_answer=take, meanwhile=True).report.cached
        assert given == [True]


def test_what_inflates_without_end_is_a_miss(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    with Cache(path, note=notes.append) as cache:
        cache.put("a", "x" * 100_000)
        assert cache.get("a") is not None
        monkeypatch.setattr("glenside.cache.store._LONGEST", 50_000)
        assert cache.get("a") is None
    assert "more than 50,000 bytes" in notes[0]


def test_the_version_of_the_code_is_that_of_every_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version depends on the files of all installed packages: another byte in any file is another version."""
    folder = tmp_path / "glenside" / "cache"
    folder.mkdir(parents=True)
    (tmp_path / "rewrites").mkdir()
    (tmp_path / "glenside" / "rewrites").symlink_to(tmp_path / "rewrites")
    (folder / "store.py").write_text("")
    rule = tmp_path / "rewrites" / "rule.py"
    real, found = store.code_version.__wrapped__(), set()
    monkeypatch.setattr(store, "__file__", str(folder / "store.py"))
    for text in ("a = 1", "a = 2"):
        rule.write_text(text)
        found.add(store.code_version.__wrapped__())
    rule.unlink()
    found.add(store.code_version.__wrapped__())
    assert len({real, *found}) == 4
    assert hashlib.sha256().hexdigest() not in {real, *found}


@pytest.mark.parametrize("meanwhile", [False, True])
def test_an_answer_whose_check_is_ended_says_that_it_is_not_checked(
    meanwhile: bool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was found out when it was kept."""
    import glenside as gl
    from glenside.cache import search_results

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    program, target, given = gl.parse(SMALL, shapes={"a": (3, 4), "b": (3, 4)}), gl.NPU(4, 4), list[gl.Result]()
    with Cache(path) as cache:
        assert gl.optimize(program, target, cache=cache).report.ok
        if not meanwhile:
            monkeypatch.setattr(search_results, "compared", interrupted)
        take = interrupted if meanwhile else given.append
        found = gl.optimize(program, target, cache=cache, on_answer=take, meanwhile=meanwhile)
        assert given == ([] if meanwhile else [found])
        assert found.interrupted
        assert found.report.cached
        assert found.report.checked == "not checked"
        assert {row.checked for row in found.report.layers} == {"not checked"}
        monkeypatch.undo()
        assert gl.optimize(program, target, cache=cache).report.ok  # what is kept is as it was
