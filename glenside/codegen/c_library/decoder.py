"""Prints decoders of language models as C: two steps with one cache and one file of weights, and a `main`."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from string import Template

from glenside.codegen.c_library.export import Library, libraries
from glenside.codegen.c_library.exported import Exported
from glenside.codegen.open_sizes.template import OpenBuffer
from glenside.codegen.processor.model import Machine
from glenside.codegen.runtime.compile_and_load import build_line
from glenside.ir.dtypes import RECORDS
from glenside.ir.errors import BadInput

STEP, ROWS = "decoder_step", "decoder_rows"
"""The C names of the step of one token, and of the step of many."""
FILES = ("main.c", "decoder.c", "decoder.h", f"{STEP}.c", f"{STEP}.h", f"{ROWS}.c", f"{ROWS}.h", "decoder.weights")


def decoder_library(step: Exported, rows: Exported) -> Library:
    """Returns the files of a decoder: `decoder.c`, `main.c`, a step of one token, one of many, and their weights.

    Both are programs of `glenside.models.decoder.decoder_step`. Raises BadInput for other ones, and Unverified.
    """
    caches = [buffer for buffer in step.inputs if buffer.name not in ("tokens", "past")]
    _require_step(step, rows, caches)
    dims = {b.name: b.at({}) for b in caches}
    sizes = [prod(dims[b.name]) * RECORDS[b.dtype].numpy.itemsize for b in caches]
    made = libraries({STEP: [step], ROWS: [rows]})
    fields = {
        "CACHES": str(len(caches)),
        "PAST": str(dims[caches[0].name][1]),
        "ROWS": str(_named(rows.inputs, "tokens").at({})[0]),
        "WORDS": str(prod(_named_results(step)["logits"].at({}))),
        "BYTES": str(max(sizes)),
        "HEADS": ", ".join(str(dims[b.name][0]) for b in caches),
        "ROW": ", ".join(str(prod(dims[b.name][2:]) * RECORDS[b.dtype].numpy.itemsize) for b in caches),
        "STEP_ARGUMENTS": _arguments(step, caches),
        "ROWS_ARGUMENTS": _arguments(rows, caches),
        "BUILD": _build(step.machine),
    }
    texts = {"main.c": _MAIN, "decoder.c": _SOURCE, "decoder.h": _HEADER}
    written = {name: Template(text).substitute(fields) for name, text in texts.items()}
    return Library({**written, **made.texts}, made.weights, (_build(step.machine),))


def _build(machine: Machine | None) -> str:
    return build_line(f"main.c decoder.c {STEP}.c {ROWS}.c -o decoder", machine)


def _require_step(step: Exported, rows: Exported, caches: list[OpenBuffer]) -> None:
    """Raises BadInput unless both programs are steps of one decoder."""
    names = {b.name for b in step.inputs}
    results = _named_results(step)
    is_step = {"tokens", "past"} <= names and "logits" in results and caches
    if not is_step or any(f"new.{b.name}" not in results or len(b.dims) < 2 for b in caches):
        raise BadInput("a decoder in C is one that gl.load gives of a .gguf file, or decoder_step")
    if names != {b.name for b in rows.inputs}:
        raise BadInput("both steps of a decoder in C are of one decoder")


def _named(buffers: list[OpenBuffer], name: str) -> OpenBuffer:
    return next(buffer for buffer in buffers if buffer.name == name)


def _named_results(program: Exported) -> Mapping[str, OpenBuffer]:
    places = zip(program.result_names(), program.returned, strict=True)
    return {name: program.buffers[place] for name, place in places}


def _arguments(program: Exported, caches: list[OpenBuffer]) -> str:
    """Returns the arguments of a step behind its program: tokens, the cache, and where results are stored."""
    number = {b.name: i for i, b in enumerate(caches)}
    inputs = {"tokens": "tokens", "past": "&d->past"}
    found = [inputs.get(b.name) or f"(void *)d->cache[{number[b.name]}]" for b in program.inputs]
    stored = {place: name for name, place in zip(program.result_names(), program.returned, strict=True)}
    for place in dict.fromkeys(program.returned):
        name = stored[place].removeprefix("new.")
        found.append("d->logits" if name == "logits" else f"(void *)d->fresh[{number[name]}]")
    lines = [", ".join(found[i : i + 4]) for i in range(0, len(found), 4)]
    return ",\n        ".join(lines)


_HEADER = """#ifndef GLENSIDE_DECODER_H
#define GLENSIDE_DECODER_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
enum { DECODER_PAST = $PAST, DECODER_WORDS = $WORDS };
typedef struct decoder decoder;

/* A decoder with an empty cache and the weights of decoder.weights, which is mapped; 0 where it is another file, or
   memory or threads do not suffice. There may be many; each takes one call at a time. */
decoder *decoder_open(const char *weights, int threads);
/* Takes the next tokens, and sets `logits` to the DECODER_WORDS logits of the last one, valid until the next call. 0;
   -4 where the cache, of DECODER_PAST tokens, has no room for all of them; above 0 where a token is none of the words;
   -1 where memory does not suffice. In these cases it takes none. */
int decoder_feed(decoder *d, const int64_t *tokens, int64_t count, const float **logits);
/* Forgets all tokens but the first ones. */
void decoder_keep(decoder *d, int64_t count);
void decoder_close(decoder *d);
#ifdef __cplusplus
}
#endif
#endif
"""
_SOURCE = """/* A decoder: a step of $ROWS tokens and one of one token, on one cache and one copy of the weights. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "decoder.h"
#include "decoder_rows.h"
#include "decoder_step.h"

enum { CACHES = $CACHES, ROWS = $ROWS };
static const int64_t heads[CACHES] = {$HEADS}, row[CACHES] = {$ROW}; /* row: bytes of a head of one token */

struct decoder {
    void *weights;
    size_t bytes;
    decoder_step_program *step;
    decoder_rows_program *rows;
    unsigned char *cache[CACHES], *fresh[CACHES];
    float logits[DECODER_WORDS];
    int64_t past;
};

decoder *decoder_open(const char *weights, int threads)
{
    decoder *d = calloc(1, sizeof *d);
    int file = d && weights ? open(weights, O_RDONLY) : -1;
    struct stat about;
    int whole = file >= 0 && !fstat(file, &about) && about.st_size > 0;
    if (whole) {
        d->bytes = (size_t)about.st_size;
        d->weights = mmap(0, d->bytes, PROT_READ, MAP_PRIVATE, file, 0);
        if ((whole = d->weights != MAP_FAILED)) {
            d->step = decoder_step_open_mapped(d->weights, d->bytes, threads);
            d->rows = decoder_rows_open_mapped(d->weights, d->bytes, threads);
        } else d->weights = 0;
    }
    if (file >= 0) close(file);
    whole = whole && d->step && d->rows;
    for (int i = 0; whole && i < CACHES; i++) {
        d->cache[i] = calloc((size_t)(heads[i] * row[i]), DECODER_PAST);
        d->fresh[i] = malloc((size_t)(heads[i] * row[i] * ROWS));
        whole = d->cache[i] && d->fresh[i];
    }
    if (whole) return d;
    decoder_close(d);
    return 0;
}

void decoder_close(decoder *d)
{
    if (!d) return;
    decoder_step_close(d->step);
    decoder_rows_close(d->rows);
    for (int i = 0; i < CACHES; i++) { free(d->cache[i]); free(d->fresh[i]); }
    if (d->weights) munmap(d->weights, d->bytes);
    free(d);
}

void decoder_keep(decoder *d, int64_t count)
{
    if (count >= 0 && count < d->past) d->past = count;
}

static int step_of_one(decoder *d, const int64_t *tokens)
{
    return decoder_step_run(d->step, $STEP_ARGUMENTS);
}

static int step_of_many(decoder *d, const int64_t *tokens)
{
    return decoder_rows_run(d->rows, $ROWS_ARGUMENTS);
}

/* Stores the new keys and values behind those of the tokens before. */
static void store(decoder *d, int64_t count)
{
    for (int i = 0; i < CACHES; i++)
        for (int64_t head = 0; head < heads[i]; head++)
            memcpy(d->cache[i] + (head * DECODER_PAST + d->past) * row[i], d->fresh[i] + head * count * row[i],
                (size_t)(count * row[i]));
    d->past += count;
}

int decoder_feed(decoder *d, const int64_t *tokens, int64_t count, const float **logits)
{
    int64_t before = d->past;
    if (count < 1 || count > DECODER_PAST - d->past) return -4;
    for (int64_t own; count > 0; tokens += own, count -= own) {
        own = count < ROWS ? 1 : ROWS;
        int status = own == ROWS ? step_of_many(d, tokens) : step_of_one(d, tokens);
        if (status) { d->past = before; return status; }
        store(d, own);
    }
    *logits = d->logits;
    return 0;
}
"""
_MAIN = """/* Writes tokens, the most likely ones: decoder WEIGHTS THREADS COUNT TOKEN..
   cc: $BUILD */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "decoder.h"

static double now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int64_t most_likely(const float *logits)
{
    int64_t best = 0;
    for (int64_t word = 1; word < DECODER_WORDS; word++)
        if (logits[word] > logits[best]) best = word;
    return best;
}

int main(int count, char **words)
{
    if (count < 5) return fprintf(stderr, "decoder WEIGHTS THREADS COUNT TOKEN..\\n"), 2;
    decoder *d = decoder_open(words[1], atoi(words[2]));
    if (!d) return fprintf(stderr, "%s is not the file of weights, or memory does not suffice\\n", words[1]), 2;
    int64_t prompt = count - 4, written = atoll(words[3]), *tokens = malloc((size_t)count * sizeof *tokens);
    const float *logits = 0;
    for (int64_t i = 0; i < prompt; i++) tokens[i] = atoll(words[4 + i]);
    double begin = now(), first = 0;
    int status = decoder_feed(d, tokens, prompt, &logits);
    first = now();
    for (int64_t i = 0; !status && i < written; i++) {
        int64_t token = most_likely(logits);
        printf("%lld%c", (long long)token, i + 1 < written ? ' ' : '\\n');
        if (i + 1 < written) status = decoder_feed(d, &token, 1, &logits);
    }
    const char *wrong = status == -4 ? "the cache is full" : status > 0 ? "a token is no word" : "no memory";
    if (status) fprintf(stderr, "%s\\n", wrong);
    else fprintf(stderr, "%.1f tokens/s of the prompt, %.1f written\\n", (double)prompt / (first - begin),
        (double)(written - 1) / (now() - first));
    free(tokens);
    decoder_close(d);
    return status != 0;
}
"""
