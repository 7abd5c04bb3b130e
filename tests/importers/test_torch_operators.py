"""Compares records of ATen operators with PyTorch: calls that no sample of PyTorch makes, and samples of PyTorch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from glenside.importers.torch.node import records

torch = pytest.importorskip("torch")

from torch_samples import UNSPECIFIED, decompositions, judged, samples  # noqa: E402

aten = torch.ops.aten


@pytest.fixture(scope="module", name="table")
def _table() -> Any:
    return decompositions()


def _image(*dims: int) -> Any:
    return torch.randn(*dims)


def _normalized(rows: int) -> tuple[Any, Any, Any, Any]:
    x = torch.randn(rows, 3, 8)
    mean = x.mean(-1, keepdim=True)
    return torch.randn_like(x), x, mean, (x.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()


def _grouped() -> tuple[Any, ...]:
    x = torch.randn(2, 6, 5)
    groups = x.reshape(2, 3, 10)
    mean, rstd = groups.mean(-1), (groups.var(-1, unbiased=False) + 1e-5).rsqrt()
    return torch.randn_like(x), x, mean, rstd


def _pooled() -> tuple[Any, ...]:
    x = torch.randn(2, 3, 7, 8)
    y, places = aten.max_pool2d_with_indices(x, [3, 2], [2, 2], [1, 0])
    return torch.randn_like(y), x, [3, 2], [2, 2], [1, 0], [1, 1], False, places


def _convolved(transposed: bool, groups: int) -> tuple[Any, ...]:
    x, w = torch.randn(2, 4, 7, 6), torch.randn(*((4, 3, 3, 2) if transposed else (6, 4 // groups, 3, 2)))
    how = ([2, 1], [1, 0], [1, 2], transposed, [1, 0] if transposed else [0, 0], groups)
    y = aten.convolution(x, w, None, *how)
    return torch.randn_like(y), x, w, [w.shape[1] * groups if transposed else 6], *how, [True, True, True]


IDS = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9])
CALLS: dict[str, list[Callable[[], tuple[Any, ...]]]] = {
    "convolution_backward": [lambda: _convolved(False, 1), lambda: _convolved(False, 2), lambda: _convolved(True, 2)],
    "avg_pool2d_backward": [
        lambda counts=counts, divisor=divisor: (
            _image(1, 2, 4, 3),
            _image(1, 2, 7, 6),
            [3, 2],
            [2, 2],
            [1, 0],
            False,
            counts,
            divisor,
        )
        for counts, divisor in ((True, None), (False, None), (True, 5))
    ],
    "avg_pool3d_backward": [
        lambda: (_image(1, 2, 2, 2, 2), _image(1, 2, 4, 5, 4), [2, 3, 2], [2, 2, 2], [0, 0, 0], False, True, None)
    ],
    "_adaptive_avg_pool2d_backward": [lambda: (_image(2, 3, 4, 2), _image(2, 3, 7, 6))],
    "max_pool2d_with_indices_backward": [_pooled],
    "native_layer_norm_backward": [
        lambda: (*_normalized(2)[:2], [8], *_normalized(2)[2:], torch.randn(8), torch.randn(8), [True, True, True]),
        lambda: (*_normalized(4)[:2], [8], *_normalized(4)[2:], None, None, [True, False, False]),
    ],
    "native_group_norm_backward": [
        lambda: (*_grouped(), torch.randn(6), 2, 6, 5, 3, [True, True, True]),
        lambda: (*_grouped(), None, 2, 6, 5, 3, [True, False, False]),
    ],
    "embedding_dense_backward": [
        lambda: (torch.randn(8, 3), IDS, 10, -1, False),
        lambda: (torch.randn(2, 4, 3), IDS.reshape(2, 4), 10, 4, False),
    ],
    "_embedding_bag": [
        lambda mode=mode, weights=weights: (
            torch.randn(10, 3),
            IDS,
            torch.tensor([0, 4, 4]),
            False,
            mode,
            False,
            weights,
        )
        for mode, weights in ((0, None), (1, None), (2, None), (0, torch.randn(8)))
    ],
    "_native_batch_norm_legit_no_training": [
        lambda: (_image(2, 3, 4), torch.randn(3), torch.randn(3), torch.randn(3), torch.rand(3) + 1, 0.1, 1e-5),
        lambda: (_image(2, 3, 4, 5), None, None, torch.randn(3), torch.rand(3) + 1, 0.1, 1e-5),
    ],
    "col2im": [lambda: (_image(2, 12, 20), [6, 7], [2, 3], [1, 1], [0, 1], [1, 2])],
    "native_dropout": [lambda: (_image(3, 4), 0.5, False)],
    "upsample_nearest2d": [lambda: (_image(1, 2, 5, 7), [8, 3], None), lambda: (_image(1, 2, 5, 7), None, [2.0, 1.5])],
    "atan2": [
        lambda: tuple(torch.cartesian_prod(*[torch.tensor([0.0, -0.0, 1, -2, float("inf"), -float("inf")])] * 2).T)
    ],
}
OVERLOADS = {"upsample_nearest2d": "vec"}
RESULTS = {"_embedding_bag": 1, "_native_batch_norm_legit_no_training": 1}
"""Results that are compared, where others are left undefined."""


@pytest.mark.parametrize(("name", "number"), [(name, i) for name, calls in CALLS.items() for i in range(len(calls))])
def test_calls_agree_with_pytorch(name: str, number: int, table: Any) -> None:
    torch.manual_seed(0)
    operator = getattr(getattr(aten, name), OVERLOADS.get(name, "default"))

    def called(*args: Any) -> Any:
        found = operator(*args)
        return found[: RESULTS.get(name, 9)] if isinstance(found, tuple) else found

    own = {op: how for op, how in table.items() if op is not operator}
    verdict = judged(called, (CALLS[name][number](), {}), own)
    assert (verdict.outcome, verdict.words) == ("passed", "")
    assert name in verdict.operators


def _drawn(seed: int, count: int) -> Iterator[Any]:
    pytest.importorskip("expecttest")  # which those samples import
    from torch.testing._internal.common_methods_invocations import op_db

    yield from random.Random(seed).sample([info for info in op_db if info.name not in UNSPECIFIED], count)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_samples_of_pytorch_are_equal_or_refused(seed: int, table: Any) -> None:
    """`benchmarks/torch_operators.py` runs all of them."""
    passed = 0
    for info in _drawn(seed, 40):
        for dtype in (torch.float32, torch.int64, torch.bool):
            if dtype in info.dtypes:
                for args, kwargs in list(samples(info, dtype))[:12]:
                    verdict = judged(info.op, (args, kwargs), table)
                    assert verdict.outcome != "wrong", f"{info.name} {dtype}: {verdict.words}"
                    passed += verdict.outcome == "passed"
    assert passed > 200


def test_no_record_is_without_an_overload_of_pytorch() -> None:
    for name, record in records().items():
        for overload in record.overloads if "." not in name else ():  # of other libraries
            assert overload in getattr(aten, name).overloads(), f"{name}.{overload}"
