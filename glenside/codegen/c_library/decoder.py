"""Prints decoders of language models as C: a step of few or many tokens over one cache, its weights, and a `main`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from string import Template

from glenside.codegen.c_library.export import Library, libraries
from glenside.codegen.c_library.exported import Exported
from glenside.codegen.runtime.compile_and_load import build_line
from glenside.ir.dtypes import RECORDS
from glenside.ir.errors import BadInput

STEP = "decoder_step"
"""The C name of the step."""
FILES = ("main.c", "decoder.c", "decoder.h", f"{STEP}.c", f"{STEP}.h", "decoder.weights")


_LEAST = {"rows": (1, 1), "past": (0, 1)}
"""The least size and the step of a range."""


def check_ranges(ranges: Mapping[str, Sequence[int]], required: Sequence[str] = ()) -> None:
    """Raises BadInput for ranges of rows or past that a decoder in C does not have, or that lack a required size."""
    given = {size: ranges.get(size, (-1,)) for size in _LEAST if size in ranges or size in required}
    if any(tuple(own[::2]) != _LEAST[size] for size, own in given.items()) or ranges.get("rows", (1, 2))[1] < 2:
        raise BadInput(
            "a decoder in C computes 1 to N tokens, N at least 2, after 0 to M others: --dim rows=1..N, past=0..M"
        )


def decoder_library(step: Exported) -> Library:
    """Returns the files of a decoder: `main.c`, `decoder.c`, the step, and its weights.

    The step is a program of `glenside.models.open_decoder.growing_decoder`, for ranges of rows and past, or of
    `ring_decoder`. Raises BadInput for others, and for one whose next cache is not stored in place; Unverified.
    """
    inputs = {b.name: b for b in step.inputs}
    results = dict(zip(step.result_names(), step.returned, strict=True))
    is_ring = "past" in inputs
    caches = [b for b in step.inputs if b.name not in ("tokens", "past")]
    after = {b.name: f"{'next' if is_ring else 'present'}.{b.name}" for b in caches}
    wanted = {"logits", *after.values(), *(["next.past"] if is_ring else [])}
    if not caches or "tokens" not in inputs or {*results} != wanted or "rows" not in step.ranges:
        raise BadInput(
            "a decoder in C is one that gl.load gives of a .gguf file or a checkpoint, of open rows and past"
        )
    check_ranges(step.ranges, ("rows",) if is_ring else ("rows", "past"))
    copied = next((b.name for b in caches if step.in_place.get(b.name) != results[after[b.name]]), "")
    if copied:
        raise BadInput(f"{step.title} copies its state {copied} at each step, which a decoder in C does not")
    greatest = {name: high for name, (_, high, _) in step.ranges.items()}
    given = {"rows": "own", "past": "d->past"}
    places = {"tokens": "tokens", "past": "&d->past", "next.past": "&d->next", "logits": "d->logits"}
    for number, buffer in enumerate(caches):
        places |= dict.fromkeys((buffer.name, after[buffer.name]), f"(void *)d->cache[{number}]")
    stored = {place: places[name] for name, place in results.items()}
    arguments = [*(given[size] for size in step.sizes), *(places[name] for name in inputs)]
    arguments += [stored[place] for place in dict.fromkeys(step.returned)]
    build = build_line(f"main.c decoder.c {STEP}.c -o decoder", step.machine)
    fields = {
        "CACHES": len(caches),
        "PAST": greatest.get("past", 0),
        "ROWS": greatest["rows"],
        "WORDS": prod(step.buffers[results["logits"]].at(greatest)),
        "BYTES": ", ".join(str(prod(b.at(greatest)) * RECORDS[b.dtype].numpy.itemsize) for b in caches),
        "ARGUMENTS": ",\n        ".join(", ".join(arguments[i : i + 5]) for i in range(0, len(arguments), 5)),
        "BUILD": build,
    }
    made, texts = libraries({STEP: [step]}), {"main.c": _MAIN, "decoder.c": _SOURCE, "decoder.h": _HEADER}
    own = {name: Template(text).substitute(fields) for name, text in texts.items()}
    return Library({**own, **made.texts}, made.weights, (build,))


_HEADER = """#ifndef GLENSIDE_DECODER_H
#define GLENSIDE_DECODER_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
/* DECODER_PAST: the most tokens; 0: any number, of which the cache has those that attention reads. DECODER_ROWS: tokens
   that are computed at a time. DECODER_WORDS: tokens that there are. */
enum { DECODER_PAST = $PAST, DECODER_ROWS = $ROWS, DECODER_WORDS = $WORDS };
typedef struct decoder decoder;

/* A decoder with an empty cache and the weights of decoder.weights, which is mapped; 0 where it is another file, or
   memory or threads do not suffice. There may be many; each takes one call at a time. */
decoder *decoder_open(const char *weights, int threads);
/* Takes the next tokens, and sets `logits` to the DECODER_WORDS logits of the last one, valid until the next call. 0;
   -4 where there would be more than DECODER_PAST tokens; above 0 where a token is none of the words. In these cases it
   takes none. -1 where memory does not suffice. */
int decoder_feed(decoder *d, const int64_t *tokens, int64_t count, const float **logits);
/* Forgets all tokens but the first ones. 0; -4 where it does not have them any more: where DECODER_PAST is 0 it forgets
   fewer than DECODER_ROWS tokens, or all. */
int decoder_keep(decoder *d, int64_t count);
void decoder_close(decoder *d);
#ifdef __cplusplus
}
#endif
#endif
"""
_SOURCE = """/* A decoder: a step of 1 to $ROWS tokens, whose keys and values are stored in the cache that it reads. */
#define _GNU_SOURCE
#include <stdlib.h>
#include "decoder.h"
#include "decoder_step.h"

enum { CACHES = $CACHES };
static const size_t bytes[CACHES] = {$BYTES};

struct decoder {
    decoder_step_program *step;
    unsigned char *cache[CACHES];
    float logits[DECODER_WORDS];
    int64_t past, next, most; /* tokens; the same after a step; the most since there were none */
};

decoder *decoder_open(const char *weights, int threads)
{
    decoder *d = calloc(1, sizeof *d);
    int whole = d && (d->step = decoder_step_open(weights, threads));
    for (int i = 0; whole && i < CACHES; i++) whole = (d->cache[i] = calloc(bytes[i], 1)) != 0;
    if (whole) return d;
    decoder_close(d);
    return 0;
}

void decoder_close(decoder *d)
{
    if (!d) return;
    decoder_step_close(d->step);
    for (int i = 0; i < CACHES; i++) free(d->cache[i]);
    free(d);
}

int decoder_keep(decoder *d, int64_t count)
{
    if (count < 0 || count > d->past || (!DECODER_PAST && count && d->most - count >= DECODER_ROWS)) return -4;
    d->past = count;
    if (!count) d->most = 0;
    return 0;
}

static int step(decoder *d, const int64_t *tokens, int64_t own)
{
    return decoder_step_run(d->step, $ARGUMENTS);
}

int decoder_feed(decoder *d, const int64_t *tokens, int64_t count, const float **logits)
{
    int64_t before = d->past;
    if (count < 1 || (DECODER_PAST && count > DECODER_PAST - d->past)) return -4;
    for (int64_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= DECODER_WORDS) return 1;
    for (int64_t own; count > 0; tokens += own, count -= own) {
        own = count < DECODER_ROWS ? count : DECODER_ROWS;
        int status = step(d, tokens, own);
        if (status) {
            if (decoder_keep(d, before)) decoder_keep(d, 0);
            return status;
        }
        d->past += own;
        if (d->past > d->most) d->most = d->past;
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
    int64_t written = count < 5 ? 0 : atoll(words[3]);
    if (written < 1) return fprintf(stderr, "decoder WEIGHTS THREADS COUNT TOKEN.., COUNT at least 1\\n"), 2;
    decoder *d = decoder_open(words[1], atoi(words[2]));
    if (!d) return fprintf(stderr, "%s is not the file of weights, or memory does not suffice\\n", words[1]), 2;
    int64_t prompt = count - 4, *tokens = malloc((size_t)count * sizeof *tokens);
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
