"""Writes tokens with a decoder: a GGUF file, a checkpoint of transformers, or random weights of a shape.

    python examples/decoder.py model.gguf --prompt "Once upon a time" --tokens 64
    python examples/decoder.py folder_of_config_and_safetensors/ --prompt "1 450 4996"
    python examples/decoder.py model.gguf --c folder/
    python examples/decoder.py --shape layers=4,hidden=2048,heads=32,kv_heads=8,intermediate=8192 --bits 4

One function is compiled for all lengths; the prompt runs up to `--rows` tokens at a time. `--activations int8`, the
default for GGUF files and random weights of 4 or 8 bits, multiplies integers, as llama.cpp does. Where it is installed
(`pip install xllamacpp`), llama.cpp runs the same GGUF file afterwards.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

import glenside as gl
from glenside.check.written_decoder import write_decoder
from glenside.ir.errors import GlensideError
from glenside.ir.program import Program
from glenside.models.decoder import Decoder, growing_step
from glenside.models.decoder_cache import CACHES
from glenside.models.decoder_weights import RandomWeights
from glenside.models.open_decoder import ring_decoder

SHAPE = {"layers": 2, "hidden": 1024, "heads": 16, "kv_heads": 8, "intermediate": 4096, "vocabulary": 4096}


class Session:
    """A decoder with its cache, one function for all lengths: takes tokens and returns the logits of the last one."""

    def __init__(self, program: gl.OpenProgram, threads: int | None, activations: str) -> None:
        self.threads, self.rows = threads, program.greatest["rows"]
        self.step = gl.compile(program, "none", activations=activations, state=True)

    def feed(self, tokens: Sequence[int]) -> np.ndarray:
        """Takes tokens, as many at a time as the function has rows; returns the logits of the last one."""
        for begin in range(0, len(tokens), self.rows):
            logits: np.ndarray = self.step(np.array(tokens[begin : begin + self.rows]), threads=self.threads)
        return logits


def main() -> None:
    """Write tokens, and print the tokens a second of both runtimes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "file", nargs="?", help="a GGUF file or a folder of a checkpoint; without one, weights are random"
    )
    parser.add_argument("--shape", default="", help="NAME=NUMBER,.. of glenside.models.decoder.Decoder, without a file")
    parser.add_argument("--bits", type=int, default=4, choices=(4, 8, 32), help="of random weights")
    parser.add_argument("--prompt", default="1 2 3 4", help="text, or numbers of tokens")
    parser.add_argument("--tokens", type=_from(0), default=32, help="to write")
    parser.add_argument("--context", type=_from(1), default=512, help="tokens for which the cache has room")
    parser.add_argument("--rows", type=_from(1), default=128, help="tokens of the prompt at a time")
    parser.add_argument("--threads", type=_from(1))
    parser.add_argument("--activations", choices=("float32", "int8"), help="int8 for weights of 4 or 8 bits")
    parser.add_argument("--cache", choices=CACHES, default="float32", help="dtype of keys and values in the cache")
    parser.add_argument("--ring", action="store_true", help="store the rows of the sliding window only, for any length")
    parser.add_argument("--c", metavar="FOLDER", help="write the decoder as C to a folder, and no tokens")
    given = parser.parse_args()
    if given.activations is None:
        is_small = given.file.endswith(".gguf") if given.file else given.bits < 32
        given.activations = "int8" if is_small else "float32"
    if given.c:
        made, said = write_decoder(_any_length(given), given.c, given.activations)
        print(f"{given.c}: {said}. Compile it there: {made.build[0]}")
        return
    pieces = _pieces(given.file) if given.file else []
    prompt = _numbers(given.prompt, pieces, len(pieces) if given.file else _shape(given).vocabulary)
    if len(prompt) + given.tokens > given.context and not given.ring:
        raise SystemExit(f"{len(prompt)} and {given.tokens} tokens do not fit: --context gives room for more")
    begin = time.perf_counter()
    session = Session(_any_length(given), given.threads, given.activations)
    print(f"compiled in {time.perf_counter() - begin:.1f} s, once for all lengths")
    begin = time.perf_counter()
    logits = session.feed(prompt)
    first = time.perf_counter()
    written = []
    for _ in range(given.tokens):
        written.append(int(logits.argmax()))
        logits = session.feed(written[-1:])
    seconds = time.perf_counter() - first
    print("".join(pieces[token] for token in written) if pieces else " ".join(map(str, written)))
    speeds = {"glenside": (len(prompt) / (first - begin), given.tokens / seconds)}
    if str(given.file).endswith(".gguf") and (
        beside := llama_cpp(given.file, prompt, given.tokens, given.context, given.threads)
    ):
        speeds["llama.cpp"] = beside
    for name, (read, write) in speeds.items():
        print(f"{name:10}{read:8.1f} tokens/s of the prompt, {write:8.1f} written")


def _from(least: int) -> Callable[[str], int]:
    """Returns what reads a whole number of at least that."""

    def read(text: str) -> int:
        if not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"requires a whole number of at least {least}, got {text}")
        return int(text)

    return read


def llama_cpp(
    file: str, prompt: Sequence[int], count: int, context: int, threads: int | None
) -> tuple[float, float] | None:
    """Returns llama.cpp's tokens a second, of the prompt and written; None where it is not installed."""
    try:
        import xllamacpp
    except ImportError:
        return None
    how = xllamacpp.CommonParams()
    how.model.path, how.n_ctx, how.n_parallel, how.verbosity = file, context, 1, -1
    if threads:
        how.cpuparams.n_threads = how.cpuparams_batch.n_threads = threads
    asked = {"prompt": [*prompt], "n_predict": count, "ignore_eos": True, "temperature": 0, "cache_prompt": False}
    found: Mapping[str, Any] = xllamacpp.Server(how).handle_completions(asked)
    timings = found["timings"]
    return float(timings["prompt_per_second"]), float(timings["predicted_per_second"])


def _any_length(given: argparse.Namespace) -> gl.OpenProgram:
    """Returns the step of a decoder, for up to `--rows` tokens after up to `--context` others."""
    sizes = {"rows": (1, max(2, given.rows))} | ({} if given.ring else {"past": (0, given.context)})
    if given.file:
        found: gl.OpenProgram = gl.load(given.file, dims=sizes, cache=given.cache, ring=given.ring)
        return found
    shape, weights = _shape(given), RandomWeights(given.bits).values
    if given.ring:
        own = ring_decoder("decoder", shape, lambda _: RandomWeights(given.bits, values=weights), sizes["rows"])
        assert isinstance(own, gl.OpenProgram), "its rows are a range"
        return own

    def make(rows: int, past: int) -> Program:
        most = given.context + sizes["rows"][1]
        return growing_step(shape, RandomWeights(given.bits, values=weights), rows, past, most)

    return gl.open_program(make, "decoder", **sizes)


def _shape(given: argparse.Namespace) -> Decoder:
    """Returns the numbers of a decoder, from `--shape`."""
    known = {field.name for field in fields(Decoder) if field.type in ("int", "float", "bool")}
    sizes: dict[str, Any] = dict(SHAPE)
    for name, _, value in (part.partition("=") for part in given.shape.split(",") if part):
        if name not in known or not value.isdigit():
            raise SystemExit(f"--shape is NAME=NUMBER,.. with names of {', '.join(sorted(known))}, got {name}={value}")
        sizes[name] = int(value)
    sizes.setdefault("head", sizes["hidden"] // max(1, sizes["heads"]))
    sizes.setdefault("rotated", sizes["head"])
    return Decoder("decoder", **sizes, cache=given.cache)


def _pieces(file: str) -> list[str]:
    """Returns the text of each token of a file or folder."""
    from glenside.importers.checkpoint import read_vocabulary
    from glenside.importers.gguf.file import read_gguf

    if not file.endswith(".gguf"):
        return read_vocabulary(Path(file))

    marks = str.maketrans({"\N{LOWER ONE EIGHTH BLOCK}": " ", "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}": " "})
    return [str(text).translate(marks) for text in read_gguf(file).field("tokenizer.ggml.tokens", [])]


def _numbers(prompt: str, pieces: Sequence[str], vocabulary: int) -> list[int]:
    """Returns the tokens of a prompt: numbers, or text cut into the longest pieces, which is not each model's way."""
    if all(part.isdigit() for part in prompt.split()):
        tokens = [int(part) for part in prompt.split()] or [1]
        if vocabulary and max(tokens) >= vocabulary:
            raise SystemExit(f"the prompt has token {max(tokens)}, and the vocabulary those from 0 to {vocabulary - 1}")
        return tokens
    if not pieces:
        raise SystemExit(f"the prompt is numbers of tokens, such as '1 450', as there are no words, got {prompt!r}")
    known, longest, found = {piece: n for n, piece in enumerate(pieces)}, max(map(len, pieces)), []
    while prompt:
        size = next((n for n in range(min(longest, len(prompt)), 0, -1) if prompt[:n] in known), 0)
        found += [known[prompt[:size]]] if size else []
        prompt = prompt[size or 1 :]
    return found or [1]


if __name__ == "__main__":
    try:
        main()
    except GlensideError as error:
        print(error, file=sys.stderr)
        sys.exit(error.status)
    except MemoryError as error:
        sys.exit(f"memory does not suffice: {error}")
