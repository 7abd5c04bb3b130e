"""Lists the failures of ONNX's own backend tests by reason, the only place that does.

    python tests/onnx_failures.py

runs all of them and prints how many pass, what fails and is not listed here (grouped by its error), what is listed here
and passes, or is no test, and the table for docs/onnx.md. Tests demand that the lists are exact and the table is there.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx.backend.test
import onnx.backend.test.case.base
from numpy.lib.stride_tricks import sliding_window_view
from onnx.reference.ops import op_pool_common

VERSION = "1.23"
"""Version of the onnx package whose tests are listed; other versions have other tests."""

FAILURES: Mapping[str, tuple[str, ...]] = {
    "strings are no elements of a tensor here": (
        r"test_equal_string.*",
        r"test_string_(concat|split).*",
        r"test_strnorm(alizer|_model)_.*",
        r"test_regex_full_match_.*",
        r"test_ai_onnx_ml_label_encoder_.*",
    ),
    "float8e8m0, which has neither a zero nor negative numbers, is no dtype here": (r"test_cast_e8m0_.*",),
    "the results are random": (r"test_bernoulli.*", r"test_training_dropout(_default)?(_mask)?"),
    "expects align_corners of a length before rounding, where the specification and onnxruntime take it rounded": (
        r"test_resize_downsample_scales_(linear|cubic)_align_corners",
    ),
    "images in files are not decoded": (r"test_image_decoder_.*",),
    "expects the rounding errors of one implementation, above the tolerance, where the exact result is 0": (
        r"test_dft_inverse(_opset19)?",
    ),
    "expects a sequence with a number in it, which the suite cannot compare": (r"test_loop16_seq_none",),
}
"""Reason -> the names of tests, as regular expressions that match whole names."""

DEPENDS_ON_ROUNDING: Mapping[str, str] = {
    "test_squeezenet": "all weights are 0.02: its sums near 1e10 are equal but for how a BLAS rounds their columns"
}
"""Tests that pass on most machines -> why they may fail on some; they count as passing."""


def reason(name: str) -> str | None:
    """Returns why a test fails, or None if it passes."""
    return next((why for why, patterns in FAILURES.items() if any(re.fullmatch(p, name) for p in patterns)), None)


def _no_snippet(op_name: str, name: str, export: object) -> tuple[str, str]:
    """Replaces the text of a case for ONNX's documentation, which takes an eighth of the loading time."""
    return name, ""


_OWN_POOL = op_pool_common.pool


def pool(
    padded: np.ndarray, x_shape: Sequence[int], kernel: Sequence[int], strides: Sequence[int],
    out_shape: Sequence[int], kind: str, *given: Any, p: int = 1, **named: Any
) -> np.ndarray:  # fmt: skip
    """Pools all windows at once where there is neither padding nor dilation: ONNX's loop over the windows of its three
    largest cases takes a third of the time in which all tests are collected.
    """
    if given or any(np.any(value) for value in named.values()) or padded.shape != tuple(x_shape):
        return _OWN_POOL(padded, x_shape, kernel, strides, out_shape, kind, *given, p=p, **named)
    steps = [slice(None, None, step) for step in strides or [1] * len(kernel)]
    windows = sliding_window_view(padded, tuple(kernel), tuple(range(2, padded.ndim)))[:, :, *steps]
    rows = windows.reshape(*windows.shape[: padded.ndim], -1)
    found = np.max(rows, -1) if kind == "MAX" else np.mean(rows, -1) if kind == "AVG" else _norm(rows, p)
    return found.astype(padded.dtype)


def _norm(rows: np.ndarray, p: int) -> np.ndarray:
    return np.sum(np.abs(rows) ** p, -1) ** (1.0 / p)


@cache
def suite() -> Mapping[str, Mapping[str, Callable[..., None]]]:
    """Returns category (node, real, simple, pytorch-converted, pytorch-operator) -> name -> a function that runs the
    test.
    """
    import glenside.importers.onnx.backend

    quicker = patch.object(op_pool_common, "pool", pool)
    with warnings.catch_warnings(), patch.object(onnx.backend.test.case.base, "process_snippet", _no_snippet), quicker:
        warnings.simplefilter("ignore")  # the tests' own expected values overflow on purpose
        cases = onnx.backend.test.BackendTest(glenside.importers.onnx.backend, __name__).test_cases
    found: dict[str, dict[str, Callable[..., None]]] = {}
    for title, case in cases.items():
        words = re.findall("[A-Z][a-z]+", title.removeprefix("OnnxBackend").removesuffix("ModelTest"))
        functions = {name.removesuffix("_cpu"): f for name, f in vars(case).items() if name.endswith("_cpu")}
        found["-".join(words).lower().replace("py-torch", "pytorch")] = functions
    return found


def counts() -> dict[str, tuple[int, int]]:
    """Returns category -> (tests that pass, all tests), by the lists above."""
    return {kind: (sum(reason(name) is None for name in names), len(names)) for kind, names in suite().items()}


def table() -> list[str]:
    """Returns the counts as the table in docs/onnx.md."""
    rows = [f"| {kind} | {passing:,} | {every:,} |" for kind, (passing, every) in sorted(counts().items())]
    return [f"| tests of onnx {VERSION} | pass | of |", "|---|---:|---:|", *rows]


def unused() -> list[str]:
    """Returns patterns that match no test."""
    names = [name for functions in suite().values() for name in functions]
    return [p for patterns in FAILURES.values() for p in patterns if not any(re.fullmatch(p, n) for n in names)]


def _outcomes() -> Iterator[tuple[str, str, str | None]]:
    """Yields (category, name, error or None) of each test."""
    for kind, functions in suite().items():
        for name, function in functions.items():
            try:
                function(None)
            except Exception as error:
                words = re.sub(
                    r"^.*an element type is one of .*, got", "no element type:", " ".join(str(error).split())
                )
                yield kind, name, f"{type(error).__name__}: {words[:160]}"
            else:
                yield kind, name, None


def main() -> int:
    """Prints tests that differ from the lists; the exit status is 1 if any does."""
    passed: dict[str, int] = defaultdict(int)
    failed: dict[str, list[str]] = defaultdict(list)
    wrong = [f"no test matches {pattern}" for pattern in unused()]
    for kind, name, error in _outcomes():
        passed[kind] += error is None
        if error is None and reason(name) is not None:
            wrong.append(f"{name} passes, and is listed: {reason(name)}")
        elif error is not None and reason(name) is None:
            failed[error].append(name)
    for kind, functions in suite().items():
        print(f"{kind}: {passed[kind]:,} of {len(functions):,} pass")
    for error, names in sorted(failed.items(), key=lambda item: -len(item[1])):
        print(f"\n{len(names)} x {error}", *names, sep="\n    ")
    print("", *wrong, "", *table(), sep="\n")
    return 1 if failed or wrong else 0


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[2]))
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ONNX_MODELS"] = folder  # where the suite puts the inputs of whole networks
        sys.exit(main())
