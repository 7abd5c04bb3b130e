"""Tests decoders as C: what the written program prints, against the steps compiled in Python."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from command_line import completed
from slow_cases import quick

import glenside as gl
from glenside.check.open_function import lowered_open
from glenside.check.written_c import write
from glenside.check.written_decoder import write_decoder
from glenside.codegen.c_library.export import Library
from glenside.codegen.lowering.quantized_activations import with_activations
from glenside.codegen.processor.model import machine_of
from glenside.codegen.runtime.compile_and_load import compiler
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.models.decoder import Decoder, decoder_step, growing_step
from glenside.models.decoder_weights import RandomWeights
from glenside.models.open_decoder import ring_decoder

STRICT = ("-Wall", "-Wextra", "-Werror")
SHAPES = {
    "grouped": {"heads": 4, "kv_heads": 2, "head": 32, "rotated": 32},
    "window": {"heads": 2, "kv_heads": 1, "head": 64, "rotated": 32, "window": 5},
}
PAST, PROMPT = 24, [7, 91, 3, 3, 60, 44, 8, 2, 99, 15, 61]


def _fixed(rows: int, past: int) -> Program:
    sizes = {"layers": 1, "hidden": 128, "intermediate": 192, "vocabulary": 100, **SHAPES["grouped"]}
    return decoder_step(Decoder("decoder", **sizes), RandomWeights(4, seed=3), rows, past)  # type: ignore[arg-type]


def _open(shape: str, bits: int, rows: int = 2, **more: object) -> gl.OpenProgram:
    """Returns a step of 1 to some rows: after up to PAST others, or over a ring."""
    sizes = {"layers": 1 + (bits == 8), "hidden": 128, "intermediate": 192, "vocabulary": 100, **SHAPES[shape], **more}
    is_ring, values = sizes.pop("ring", False), {}  # type: ignore[var-annotated]
    decoder = Decoder("decoder", **sizes)  # type: ignore[arg-type]

    def weights() -> RandomWeights:
        return RandomWeights(bits, seed=3, values=values)

    if is_ring:
        found = ring_decoder("decoder", decoder, lambda _: weights(), (1, rows))
        assert isinstance(found, gl.OpenProgram)
        return found

    def make(rows: int, past: int) -> Program:
        return growing_step(decoder, weights(), rows, past, 64)

    return gl.open_program(make, "decoder", rows=(1, rows), past=(0, PAST))


def _written(program: gl.OpenProgram, activations: str, count: int) -> list[int]:
    """Returns the most likely tokens after the prompt, in Python: the function keeps the state."""
    f = gl.compile(program, "none", activations=activations, state=True)
    tokens, fed = [*PROMPT], 0
    while len(tokens) < len(PROMPT) + count:
        fed, begin = min(fed + program.greatest["rows"], len(tokens)), fed
        logits = f(np.array(tokens[begin:fed]))
        if fed == len(tokens):
            tokens.append(int(logits.argmax()))
    return tokens[len(PROMPT) :]


def _compile(folder: Path, build: str, *more: str) -> None:
    words = [*compiler(), *build.split()[1:], *STRICT, *more]
    subprocess.run(words, cwd=folder, check=True, timeout=600)


def _run(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    given = ["./decoder", "decoder.weights", *map(str, words)]
    return subprocess.run(given, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


SLOW = pytest.mark.slow


@cache
def _shared() -> tuple[gl.OpenProgram, Library, str]:
    """Returns a decoder and its files, which more than one test compiles."""
    program = _open("grouped", 4, rows=3)
    with TemporaryDirectory() as folder:
        return program, *write_decoder(program, folder, "int8")


def _copied(made: Library, folder: Path) -> None:
    folder.mkdir()
    for name, text in made.texts.items():
        (folder / name).write_text(text)
    (folder / "decoder.weights").write_bytes(made.weights)


@pytest.mark.needs_compiler
@pytest.mark.parametrize(
    ("shape", "bits", "activations", "cache"),
    [
        ("grouped", 4, "int8", "float32"),
        pytest.param("grouped", 4, "float32", "bfloat16", marks=SLOW),
        pytest.param("window", 8, "int8", "int8", marks=SLOW),
        pytest.param("window", 32, "float32", "float16", marks=SLOW),
    ],
)
def test_the_c_program_writes_the_tokens_of_python(
    tmp_path: Path, shape: str, bits: int, activations: str, cache: str
) -> None:
    if (shape, bits, activations, cache) == ("grouped", 4, "int8", "float32"):
        program, made, said = _shared()
        _copied(made, tmp_path / "out")
    else:
        program = _open(shape, bits, cache=cache)
        made, said = write_decoder(program, tmp_path / "out", activations)
    assert "and run, values as meant on random inputs" in said
    _compile(tmp_path / "out", made.build[0])
    done = _run(tmp_path / "out", 2, 12, *PROMPT)
    assert done.returncode == 0, done.stderr
    assert [int(word) for word in done.stdout.split()] == _written(program, activations, 12)
    assert "tokens/s of the prompt" in done.stderr
    full = _run(tmp_path / "out", 1, PAST - len(PROMPT) + 2, *PROMPT)
    assert (full.returncode, full.stderr) == (1, "the cache is full\n")
    none = _run(tmp_path / "out", 1, 1, 1, 2, 3, 100)
    assert (none.returncode, none.stderr) == (1, "a token is no word\n")
    wrong = _run(tmp_path / "out", 1, "many", 1)
    assert (wrong.returncode, "COUNT at least 1" in wrong.stderr) == (2, True)
    (tmp_path / "out" / "decoder.weights").write_bytes(made.weights[:-1])
    assert _run(tmp_path / "out", 1, 1, 1).returncode == 2


_KEEPING = """#include <stdio.h>
#include "decoder.h"
static int best(decoder *d, const int64_t *t, int64_t n)
{
    const float *y; int word = 0, status = decoder_feed(d, t, n, &y);
    for (int i = 1; !status && i < DECODER_WORDS; i++) if (y[i] > y[word]) word = i;
    return status ? -1 : word;
}
int main(void)
{
    decoder *d = decoder_open("decoder.weights", 1);
    int64_t t[60], bad[4] = {1, 2, 3, -1};
    if (!d) return 1;
    for (int i = 0; i < 60; i++) t[i] = (7 * i * i + 3 * i) % DECODER_WORDS;
    int right = best(d, t, LENGTH);
    if (best(d, bad, 4) >= 0 || best(d, t, 0) >= 0) return 2;
    if (decoder_keep(d, LENGTH - 1) || best(d, t + LENGTH - 1, 1) != right) return 3;
    if ((decoder_keep(d, 2) == 0) != (DECODER_PAST != 0)) return 4;
    if (decoder_keep(d, 0) || best(d, t, 3) < 0 || best(d, t + 3, LENGTH - 3) != right) return 5;
    decoder_close(d);
    return 0;
}
"""


@pytest.mark.needs_compiler
@pytest.mark.parametrize(
    ("shape", "ring", "length"),
    quick([("grouped", False, 20), ("window", False, 20), ("window", True, 50)], 0, unpacked=True),
)
def test_tokens_are_forgotten_and_refused_without_a_trace(tmp_path: Path, shape: str, ring: bool, length: int) -> None:
    if shape == "grouped":
        _, made, _ = _shared()
        _copied(made, tmp_path / "out")
    else:
        made, _ = write_decoder(_open(shape, 4, rows=3, ring=ring), tmp_path / "out")
    (tmp_path / "out" / "keep.c").write_text(_KEEPING)
    sanitizers = "-O0 -fsanitize=address,undefined -fno-sanitize-recover"  # optimizing takes thrice as long
    _compile(tmp_path / "out", made.build[0].replace("main.c", f"-DLENGTH={length} {sanitizers} keep.c"))
    assert subprocess.run("./decoder", cwd=tmp_path / "out", check=False, timeout=60).returncode == 0


@pytest.mark.needs_compiler
@pytest.mark.slow
def test_a_ring_writes_any_number_of_tokens(tmp_path: Path) -> None:
    program = _open("window", 8, rows=4, ring=True, cache="int8")
    made, _ = write_decoder(program, tmp_path / "out", "int8")
    assert (
        "bytes[CACHES] = {512, 32," in made.texts["decoder.c"]
    )  # rows of the window 5 and 3 more, by 64 and by a scale
    _compile(tmp_path / "out", made.build[0])
    done = _run(tmp_path / "out", 1, 100, *PROMPT)
    assert [int(word) for word in done.stdout.split()] == _written(program, "int8", 100)


def test_programs_that_are_no_steps_of_decoders_are_refused(tmp_path: Path) -> None:
    def net(rows: int) -> Program:
        b = gl.Builder("net")
        return b.finish(b.relu(b.input("x", (rows, 3))))

    with pytest.raises(BadInput, match=r"a decoder in C is one that gl\.load gives of a \.gguf file"):
        write_decoder(gl.open_program(net, rows=(1, 8)), tmp_path / "out")
    with pytest.raises(BadInput, match="a decoder in C has open rows"):
        write_decoder(net(3), tmp_path / "out")  # type: ignore[arg-type]
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"is written to a folder, and .* is a file"):
        write_decoder(_open("grouped", 4), tmp_path / "file")
    with pytest.raises(BadInput, match="computes 1 to N tokens, N at least 2, after 0 to M others"):
        write_decoder(_open("grouped", 32, rows=1), tmp_path / "out")


@pytest.mark.needs_compiler
def test_a_gguf_file_on_the_command_line(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    from gguf_files import written

    written(tmp_path / "net.gguf", "llama", "Q4_0")
    words = ["compile", "net.gguf", "--dim", "rows=1..3", "--dim", "past=20", "--activations", "int8", "-o", "out/"]
    done = completed(*words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    _compile(tmp_path / "out", done.stdout.split("Compile it, in out: ")[1].splitlines()[0])
    assert len(_run(tmp_path / "out", 1, 5, 7, 3, 120, 61).stdout.split()) == 5
    for more, said in (
        (["--check"], "without a search"),
        (["--machine", "avx2,generic"], "is of one machine"),
        (["--dim", "rows=1"], "computes 1 to N tokens"),
        (["--dim", "rows=4..8"], "computes 1 to N tokens"),
        (["--dim", "rows=0..8"], "computes 1 to N tokens"),
        (["--set", "ring=true"], "a ring is for decoders with a window"),
    ):
        refused = completed("compile", "net.gguf", *more, "-o", "other/", folder=tmp_path)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert said in " ".join(refused.stderr.split())
    assert not (tmp_path / "other").exists()


@pytest.mark.needs_compiler
@pytest.mark.slow
def test_a_checkpoint_on_the_command_line(tmp_path: Path) -> None:
    from checkpoint_files import written

    (tmp_path / "net").mkdir()
    written(tmp_path / "net", "qwen2")
    words = ["--dim", "rows=4", "--dim", "past=20", "--set", "cache=bfloat16", "-o", "out/", "--json", "out.json"]
    done = completed("compile", "net", *words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    assert (found["rows"], found["past"]) == (4, 20)
    _compile(tmp_path / "out", found["build"][0])
    assert len(_run(tmp_path / "out", 1, 5, 7, 3, 120, 61, 8, 9).stdout.split()) == 5


@pytest.mark.needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("activations", ["float32", "int8"])
def test_a_step_of_open_rows_and_past_is_one_c_function(tmp_path: Path, activations: str) -> None:
    """`write` compares its results with the interpreter's, at the least sizes, some between, and the greatest."""

    def make(rows: int, past: int) -> Program:
        return with_activations(_fixed(rows, past), activations)

    lowered = lowered_open(gl.open_program(make, "decoder", rows=(1, 9), past=(1, PAST)), machine_of("native"))
    assert {*lowered.windows} >= {"causal", "cosines", "sines"}
    _, said = write([lowered], tmp_path / "decoder.c")
    assert "values as meant on random inputs of sizes 1x1, 5x12, 9x24" in said


def test_weights_that_are_all_there_are_not_decoded_to_draw_others() -> None:
    program = _fixed(1, PAST)
    assert program.seeded_constants(0) is program
