"""Tests programs with open sizes whose repeated blocks are compiled once."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deep_programs import WIDTH, deep, encoder_decoder
from slow_cases import quick

import glenside as gl
from glenside.check import written_c
from glenside.check.open_function import compiled_open, lowered_for_c
from glenside.codegen.c_library import export
from glenside.codegen.open_sizes.chain import OpenChain
from glenside.codegen.open_sizes.function import OpenFunction
from glenside.codegen.open_sizes.lowered_chain import LoweredChain
from glenside.codegen.processor.model import machine_of
from glenside.codegen.runtime.compile_and_load import compiler, flags
from glenside.ir.errors import BadInput
from glenside.ir.replacing import WrittenWrong

pytestmark = pytest.mark.needs_compiler
BLOCKS = 3


def program(**more: Any) -> gl.OpenProgram:
    def make(rows: int, past: int = -1) -> gl.Program:
        return deep(rows, BLOCKS, past=None if past < 0 else past, **more)

    return gl.open_program(make, "deep", rows=(1, 40))


def with_caches() -> gl.OpenProgram:
    return gl.open_program(lambda rows, past: deep(rows, BLOCKS, past=past), "deep", rows=(1, 12), past=(0, 60))


def compiled(of: gl.OpenProgram) -> Any:
    return compiled_open(of, None, machine_of("native"), False, "float32")


@pytest.fixture(scope="module")
def chain() -> OpenChain:
    found = compiled(program())
    assert isinstance(found, OpenChain)
    return found


def right(of: gl.OpenProgram, given: dict[str, np.ndarray], **sizes: int) -> Any:
    own = of.at(sizes)
    return gl.evaluate([own.term], {**own.constants, **given})[0]


def test_blocks_are_one_library_with_weights_of_each(chain: OpenChain) -> None:
    libraries = {id(link.functions[0].library) for link in chain.links}
    assert (len(chain.links), len(libraries)) == (BLOCKS + 2, 3)
    held = [{a.ctypes.data for a in link.functions[0].lowered.made.values()} for link in chain.links]
    assert len(set().union(*held)) == sum(map(len, held))  # no packed weights are those of another block
    assert "x deep.block" in chain.report


@pytest.mark.parametrize("threads", [1, 2])
def test_results_are_those_of_the_program_at_any_size(chain: OpenChain, threads: int) -> None:
    for rows in (1, 2, 7, 16, 31, 40):
        given = chain.drawn({"rows": rows}, seed=rows)
        np.testing.assert_allclose(
            chain(given, threads=threads), right(program(), given, rows=rows), rtol=1e-4, atol=1e-4
        )
    assert chain.wrong() == []


def test_a_block_with_the_weights_of_another_one_is_seen(chain: OpenChain) -> None:
    given = chain.drawn({"rows": 4})
    wanted = chain(given)
    blocks = [link.functions[0] for link in chain.links if link.stage.kind == chain.links[1].stage.kind]
    one, other = blocks[-2:]
    one._addresses, other._addresses = other._addresses, one._addresses
    one._known.clear(), other._known.clear()
    try:
        assert not np.allclose(chain(given), wanted, atol=1e-3)
        assert chain.wrong()
    finally:
        one._addresses, other._addresses = other._addresses, one._addresses
        one._known.clear(), other._known.clear()
    np.testing.assert_array_equal(chain(given), wanted)


def test_arguments_are_those_of_any_function(chain: OpenChain) -> None:
    given = chain.drawn({"rows": 3})
    out = np.empty((3, 3), np.float32)
    assert chain(*given.values(), out=out) is not None
    np.testing.assert_array_equal(chain(given), out)
    with pytest.raises(BadInput, match="missing inputs: shift"):
        chain(given["x"], given["gain"])
    with pytest.raises(BadInput, match="rows is from 1 to 40, got 41"):
        chain(chain.drawn({"rows": 41}))
    with pytest.raises(BadInput, match="rows is 3 in x and 2 in gain"):
        chain({**given, "gain": given["gain"][:2]})
    with pytest.raises(BadInput, match="shares memory"):
        chain(given, out=given["x"].reshape(-1)[:9].reshape(3, 3))
    with pytest.raises(BadInput, match="y is not an input"):
        chain(y=given["x"])


def test_caches_of_blocks_stay_in_place() -> None:
    f = gl.compile(with_caches(), "none", state={f"past.{n}": f"output_{n + 1}" for n in range(BLOCKS)})
    assert isinstance(f.function, OpenChain)
    assert all(f.is_in_place(name) for name in f.state)
    past = {f"past.{n}": np.zeros((0, WIDTH), np.float32) for n in range(BLOCKS)}
    for step, rows in enumerate((3, 1, 12, 1)):
        own = with_caches().at({"rows": rows, "past": len(past["past.0"])})
        given = f.function.drawn({"rows": rows, "past": 0}, seed=step)
        given = {name: array for name, array in given.items() if name not in past}
        found = gl.evaluate([own.term], {**own.constants, **given, **past})[0]
        np.testing.assert_allclose(f(given), found[0], rtol=1e-4, atol=1e-4)
        past = {f"past.{n}": found[n + 1] for n in range(BLOCKS)}
        for name, array in past.items():
            np.testing.assert_allclose(f.state[name], array, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("blocks", [1, 4])
def test_an_input_that_nothing_reads_is_an_argument(blocks: int) -> None:
    def make(rows: int) -> gl.Program:
        b = gl.Builder("unread")
        x, _ = b.input("x", (rows, 8)), b.input("unread", (rows, 3))
        for block in range(blocks):
            value = np.random.default_rng(block).standard_normal((8, 8)).astype(np.float32)
            x = b.add(x, b.relu(b.linear(x, b.constant(f"w.{block}", (8, 8), value=value))))
        return b.finish(x)

    f = compiled(gl.open_program(make, "unread", rows=(0, 30)))
    assert isinstance(f, OpenChain) == (blocks > 1)
    for rows in (0, 1, 30):
        given = f.drawn({"rows": rows})
        wanted = right(gl.open_program(make, rows=(0, 30)), given, rows=rows)
        np.testing.assert_allclose(f(given), wanted, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(f(x=given["x"]), wanted, rtol=1e-4, atol=1e-4)
    with pytest.raises(BadInput, match="rows is 1 in x and 2 in unread"):
        f(given["x"][:1], np.zeros((2, 3), np.float32))


@pytest.mark.parametrize("encoded", quick([False, True], 0))
def test_layers_that_read_one_source_are_blocks(encoded: bool) -> None:
    of = gl.open_program(lambda rows, length: encoder_decoder(rows, length, encoded), rows=(1, 20), length=(1, 30))
    f = compiled(of)
    assert isinstance(f, OpenChain)
    assert f.report.startswith(f"Stages: {'1 x encoder-decoder.part1, 3' if encoded else '4'} x encoder-decoder.block")
    for rows, length in ((1, 1), (5, 9), (20, 30)):
        given = f.drawn({"rows": rows, "length": length}, seed=rows)
        wanted = right(of, given, rows=rows, length=length)
        np.testing.assert_allclose(f(given), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_blocks_with_numbers_of_their_own_are_no_chain() -> None:
    f = compiled(program(scale=lambda block: 0.1 * block))
    assert isinstance(f, OpenFunction)
    given = f.drawn({"rows": 5})
    np.testing.assert_allclose(
        f(given), right(program(scale=lambda block: 0.1 * block), given, rows=5), rtol=1e-4, atol=1e-4
    )


@pytest.mark.slow
def test_a_program_that_has_other_blocks_at_some_sizes_is_compiled_as_a_whole() -> None:
    of = gl.open_program(lambda rows: deep(rows, BLOCKS - (rows == 1)), "deep", rows=(1, 40))
    with pytest.raises(BadInput):
        compiled(of)


def c_of(program: gl.OpenProgram, folder: Path, machine: str = "native") -> str:
    """Writes a program as C, and returns what was compared."""
    lowered = lowered_for_c(program, None, machine_of(machine), True)
    assert isinstance(lowered, LoweredChain), lowered.remarks
    assert lowered.remarks == [f"stages: {lowered.said}"]
    return written_c.write([lowered], folder / "net.c")[1]


def test_c_has_one_function_for_equal_blocks(tmp_path: Path) -> None:
    """Results of all sizes are those of the interpreter; caches are stored in place; two programs share nothing."""
    assert "values as meant on random inputs of sizes 1x0, 6x30, 12x60" in c_of(with_caches(), tmp_path)
    text = (tmp_path / "net.c").read_text()
    assert (text.count("PUBLIC int run_"), text.count("if ((status = run_2(")) == (6, BLOCKS)
    build = [*compiler(), *flags(machine_of("native")), "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    subprocess.run([*build, "net.c", "-o", "net.so", "-lm", "-pthread"], cwd=tmp_path, check=True, timeout=120)
    c = ctypes.CDLL(str(tmp_path / "net.so"))
    c.net_open.restype = ctypes.c_void_p
    opened = [ctypes.c_void_p(c.net_open(str(tmp_path / "net.weights").encode(), threads)) for threads in (1, 2)]
    for step, (rows, past) in enumerate([(3, 0), (1, 60), (12, 7), (1, 60)]):
        of = with_caches()
        own = of.at({"rows": rows, "past": past})
        draw = np.random.default_rng(step)
        given = {t.name: draw.standard_normal(tuple(t.dims)).astype(np.float32) for t in own.signature.inputs}
        wanted = gl.evaluate([own.term], {**own.constants, **given})[0]
        found = [np.empty((rows, 3), np.float32), *(np.empty((rows + past, WIDTH), np.float32) for _ in range(BLOCKS))]
        if step % 2:  # the caches are those of the inputs
            for n, array in enumerate(found[1:]):
                array[:past] = given[f"past.{n}"]
                given[f"past.{n}"] = array
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*given.values(), *found)]
        assert c.net_run(opened[step % 2], ctypes.c_int64(rows), ctypes.c_int64(past), *pointers) == 0
        for got, right in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-4)
    assert c.net_run(opened[0], ctypes.c_int64(13), ctypes.c_int64(0), *pointers) == -3


@pytest.mark.parametrize("fault", ["", "weights"])
def test_c_that_takes_long_to_compare_is_compared_with_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    texts = export.texts

    def changed(*given: Any) -> dict[str, str]:
        found = texts(*given)
        first, second = re.findall(r"given[23].. = .* (program->weights . \d+), program->table", found["net.c"])
        return {**found, "net.c": found["net.c"].replace(first, second)}

    monkeypatch.setattr(written_c, "MOST_SECONDS", -1)
    if fault:
        monkeypatch.setattr(export, "texts", changed)
        with pytest.raises(WrittenWrong, match="result 1 is not that of Python"):
            c_of(program(), tmp_path)
    else:
        assert "values as those of the function in Python on random inputs of sizes 1, 20, 40" in c_of(
            program(), tmp_path
        )
