"""Tests decoders as C: what the written program prints, against the steps compiled in Python."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from command_line import completed

import glenside as gl
from glenside.check.open_function import lowered_open
from glenside.check.written_c import write
from glenside.check.written_decoder import write_decoder
from glenside.codegen.lowering.quantized_activations import with_activations
from glenside.codegen.processor.model import machine_of
from glenside.codegen.runtime.compile_and_load import compiler
from glenside.codegen.runtime.compiled_function import Lowered
from glenside.codegen.scheduling.one_packing import one_packing
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.models.decoder import Decoder, decoder_step
from glenside.models.decoder_weights import RandomWeights

STRICT = ("-Wall", "-Wextra", "-Werror")
SHAPES = {
    "grouped": {"heads": 4, "kv_heads": 2, "head": 32, "rotated": 32},
    "window": {"heads": 2, "kv_heads": 1, "head": 64, "rotated": 32, "window": 5},
}
PAST, PROMPT = 24, [7, 91, 3, 3, 60, 44, 8, 2, 99, 15, 61]


def _load(shape: str, bits: int, rows: int) -> Program:
    sizes = {"layers": 1 + (bits == 8), "hidden": 128, "intermediate": 192, "vocabulary": 100, **SHAPES[shape]}
    return decoder_step(Decoder("decoder", **sizes), RandomWeights(bits, seed=3), rows, PAST)  # type: ignore[arg-type]


def _written(shape: str, bits: int, activations: str, count: int) -> list[int]:
    """Returns the most likely tokens after the prompt, one at a time in Python."""
    f = gl.compile(_load(shape, bits, 1), "none", activations=activations)
    names = [name.removeprefix("new.") for name in f.program.result_names()[1:]]
    cache = {n: np.zeros(tuple(t.dims), np.float32) for n, t in f.program.inputs.items() if n in names}
    tokens = [*PROMPT]
    for past in range(len(PROMPT) + count - 1):
        logits, *new = f({"tokens": np.array(tokens[past : past + 1]), "past": np.array(past), **cache})
        for name, own in zip(names, new, strict=True):
            cache[name][:, past : past + 1] = own
        if past + 1 >= len(PROMPT):
            tokens.append(int(logits.argmax()))
    return tokens[len(PROMPT) :]


def _compile(folder: Path, build: str, *more: str) -> None:
    words = [*compiler(), *build.split()[1:], *STRICT, *more]
    subprocess.run(words, cwd=folder, check=True, timeout=120)


def _run(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    given = ["./decoder", "decoder.weights", *map(str, words)]
    return subprocess.run(given, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


SLOW = pytest.mark.slow


@pytest.mark.needs_compiler
@pytest.mark.parametrize(
    ("shape", "bits", "activations"),
    [
        ("grouped", 4, "int8"),
        pytest.param("grouped", 4, "float32", marks=SLOW),
        pytest.param("window", 8, "int8", marks=SLOW),
        pytest.param("window", 32, "float32", marks=SLOW),
    ],
)
def test_the_c_program_writes_the_tokens_of_python(tmp_path: Path, shape: str, bits: int, activations: str) -> None:
    made, said = write_decoder(lambda rows: _load(shape, bits, rows), tmp_path / "out", 2, activations)
    assert "and run, values as meant on random inputs" in said
    _compile(tmp_path / "out", made.build[0])
    done = _run(tmp_path / "out", 2, 12, *PROMPT)
    assert done.returncode == 0, done.stderr
    assert [int(word) for word in done.stdout.split()] == _written(shape, bits, activations, 12)
    assert "tokens/s of the prompt" in done.stderr
    full = _run(tmp_path / "out", 1, PAST - len(PROMPT) + 2, *PROMPT)
    assert (full.returncode, full.stderr) == (1, "the cache is full\n")
    none = _run(tmp_path / "out", 1, 1, 1, 2, 3, 100)
    assert (none.returncode, none.stderr) == (1, "a token is no word\n")
    (tmp_path / "out" / "decoder.weights").write_bytes(made.weights[:-1])
    assert _run(tmp_path / "out", 1, 1, 1).returncode == 2


@pytest.mark.parametrize("activations", ["float32", "int8"])
def test_few_and_many_rows_have_the_same_packed_weights(activations: str) -> None:
    packed = []
    for rows in (1, 3, 40):
        with one_packing():
            lowered = Lowered(with_activations(_load("grouped", 4, rows), activations), machine_of("avx512"))
        packed.append({b.name: a for b, a in lowered.in_memory().items() if ".weight.integers" in b.name})
    for other in packed[1:]:
        assert packed[0].keys() == other.keys()
        assert all(np.array_equal(array, other[name]) for name, array in packed[0].items())


def test_programs_that_are_no_steps_of_decoders_are_refused(tmp_path: Path) -> None:
    b = gl.Builder("net")
    program = b.finish(b.relu(b.input("x", (2, 3))))
    with pytest.raises(BadInput, match=r"a decoder in C is one that gl\.load gives of a \.gguf file"):
        write_decoder(lambda _: program, tmp_path / "out")
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"is written to a folder, and .* is a file"):
        write_decoder(lambda rows: _load("grouped", 4, rows), tmp_path / "file")
    with pytest.raises(BadInput, match="the tokens of a prompt at a time"):
        write_decoder(lambda rows: _load("grouped", 4, rows), tmp_path / "out", 1)


@pytest.mark.needs_compiler
def test_a_gguf_file_on_the_command_line(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    from gguf_files import written

    written(tmp_path / "net.gguf", "llama", "Q4_0")
    words = ["compile", "net.gguf", "--dim", "rows=3", "--dim", "past=20", "--activations", "int8", "-o", "out/"]
    done = completed(*words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    _compile(tmp_path / "out", done.stdout.split("Compile it, in out: ")[1].splitlines()[0])
    assert len(_run(tmp_path / "out", 1, 5, 7, 3, 120, 61).stdout.split()) == 5
    for more, said in (
        (["--check"], "without a search"),
        (["--machine", "avx2,generic"], "is of one machine"),
        (["--dim", "rows=1"], "the tokens of a prompt at a time"),
        (["--dim", "rows=1..4"], "the tokens of a prompt at a time"),
    ):
        refused = completed("compile", "net.gguf", *more, "-o", "other/", folder=tmp_path)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert said in " ".join(refused.stderr.split())
    assert not (tmp_path / "other").exists()


@pytest.mark.needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("activations", ["float32", "int8"])
def test_a_step_of_open_rows_and_past_is_one_c_function(tmp_path: Path, activations: str) -> None:
    """`write` compares its results with the interpreter's, at the least sizes, some between, and the greatest."""

    def make(rows: int, past: int) -> Program:
        sizes = {"layers": 1, "hidden": 128, "intermediate": 192, "vocabulary": 100, **SHAPES["grouped"]}
        program = decoder_step(Decoder("decoder", **sizes), RandomWeights(4, seed=3), rows, past)  # type: ignore[arg-type]
        return with_activations(program, activations)

    lowered = lowered_open(gl.open_program(make, "decoder", rows=(1, 9), past=(1, PAST)), machine_of("native"))
    assert {*lowered.windows} >= {"causal", "cosines", "sines"}
    _, said = write([lowered], tmp_path / "decoder.c")
    assert "values as meant on random inputs of sizes 1x1, 5x12, 9x24" in said


def test_weights_that_are_all_there_are_not_decoded_to_draw_others() -> None:
    program = _load("grouped", 4, 1)
    assert program.seeded_constants(0) is program
