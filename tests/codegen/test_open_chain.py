"""Tests programs with open sizes whose repeated blocks are compiled once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from deep_programs import WIDTH, deep

import glenside as gl
from glenside.check.open_function import compiled_open
from glenside.codegen.open_sizes.chain import OpenChain
from glenside.codegen.open_sizes.function import OpenFunction
from glenside.codegen.processor.model import machine_of
from glenside.ir.errors import BadInput

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
