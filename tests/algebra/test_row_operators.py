"""Windows, pools, paddings, slices, strides, resizes and concatenations move past products where that costs less."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from random_images import gathered

import glenside as gl
from glenside.algebra.contraction_order import MAX_TABLE
from glenside.algebra.search import cheapest_algebra
from glenside.check import check
from glenside.ir.term import Term
from glenside.targets.base import Roofline

PRICES = Roofline(50.0, 0.01, 0.08)
Form = Callable[[gl.Builder], Term]


def image(b: gl.Builder, channels: int = 16, size: int = 14) -> Term:
    return b.input("x", (1, channels, size, size))


def conv(b: gl.Builder, x: Term, filters: int, k: int = 1, padding: int | None = None, **how: int) -> Term:
    """A convolution that keeps the size of images, with new weights."""
    groups = how.get("groups", 1)
    w = b.constant(f"w{len(b.tensors)}", (filters, x.access.dims[1] // groups, k, k))
    return b.conv(x, w, padding=k // 2 if padding is None else padding, **how)


def parallel_windows(b: gl.Builder) -> Term:
    x = image(b)
    return b.add(b.add(conv(b, x, 16, 3), conv(b, x, 16)), x)


def parallel_strides(b: gl.Builder) -> Term:
    x = image(b)
    return b.add(conv(b, x, 32, 3, strides=2), conv(b, x, 32, strides=2))


def parallel_depthwise(b: gl.Builder) -> Term:
    x = image(b)
    y = conv(b, x, 16, groups=16)
    for _ in range(3):
        y = b.add(y, conv(b, x, 16, 3, groups=16))
    return y


def smaller_and_larger_windows(b: gl.Builder) -> Term:
    x = image(b)
    return b.add(conv(b, x, 16, 3), conv(b, x, 16, 5))


def dilated_and_pointwise(b: gl.Builder) -> Term:
    x = image(b)
    return b.add(conv(b, x, 16, 3, 2, dilations=2), conv(b, x, 16))


def pool_after(b: gl.Builder) -> Term:
    return b.average_pool(conv(b, image(b, 32), 16), 2)


def pool_of_windows(b: gl.Builder) -> Term:
    return b.average_pool(conv(b, image(b), 32, 3), 2)


def pool_before(b: gl.Builder) -> Term:
    return conv(b, b.average_pool(image(b, 64), 3, strides=1, padding=1), 8)


def stride_after(b: gl.Builder) -> Term:
    return b.strided(conv(b, image(b, 32), 16), (1, 1, 2, 2))


def slice_after(b: gl.Builder) -> Term:
    return b.slice_axis(conv(b, image(b, 32), 16), 2, 3, 5)


def padding_before(b: gl.Builder) -> Term:
    return conv(b, b.pad(image(b, 16, 8), [(0, 0), (0, 0), (2, 2), (2, 2)]), 16)


def pointwise_then_windows(b: gl.Builder) -> Term:
    y = b.add(conv(b, image(b), 64), b.constant("c", (64, 1, 1)))
    return conv(b, y, 16, 3)


def windows_of_windows(b: gl.Builder) -> Term:
    return conv(b, conv(b, image(b, 4), 32, 3, strides=2), 4, 3, 0)


def nearest_resize(b: gl.Builder) -> Term:
    return conv(b, b.upsample(image(b, 64, 8), 2), 16)


def linear_resize(b: gl.Builder) -> Term:
    x = image(b, 64, 8)
    for axis in (2, 3):
        x = gathered(b, x, axis, [[max(i - 1, 0) // 2, min(i + 1, 15) // 2] for i in range(16)])
    return conv(b, x, 16)


def a_broadcast_part(b: gl.Builder) -> Term:
    x = image(b, 64)
    whole = b.reshape(b.relu(b.global_average_pool(x)), (1, 64, 1, 1))
    return conv(b, b.concatenate([b.relu(x), b.broadcast(whole, (1, 64, 14, 14))], 1), 64)


def zeros_around_weights(b: gl.Builder) -> Term:
    w = b.pad(b.constant("w", (16, 32, 1, 1)), [(0, 0), (0, 0), (1, 1), (1, 1)])
    return b.conv(b.relu(image(b, 32)), w, padding=1)


def zeros_in_a_sum(b: gl.Builder) -> Term:
    return b.matmul(b.pad(b.input("x", (64, 128)), [(0, 0), (64, 64)]), b.constant("w", (256, 96)))


def one_part_of_merged_products(b: gl.Builder) -> Term:
    both = b.concatenate([b.input("v", (128, 96)), b.input("w", (128, 32))], 1)
    return b.slice_axis(b.matmul(b.input("x", (64, 128)), both), 1, 96, 128)


FOUND: dict[Form, float] = {
    **{parallel_windows: 1.4, parallel_strides: 1.2, parallel_depthwise: 5, smaller_and_larger_windows: 1.3},
    **{dilated_and_pointwise: 1.3, pool_after: 1.8, pool_of_windows: 2, pool_before: 3, stride_after: 3},
    **{slice_after: 3, padding_before: 1.5, pointwise_then_windows: 4, windows_of_windows: 3},
    **{nearest_resize: 2, linear_resize: 4, a_broadcast_part: 1.2},
    **{zeros_around_weights: 4, zeros_in_a_sum: 1.8, one_part_of_merged_products: 3},
}
"""Programs, with how many times less their best form costs at least by the prices above."""


@pytest.mark.parametrize("form", FOUND, ids=lambda form: form.__name__)
def test_row_operators_move_past_products(form: Form) -> None:
    b = gl.Builder(form.__name__)
    program = b.finish(form(b)).seeded_constants(0)
    found = cheapest_algebra(program, PRICES)
    (one,) = found.candidates
    assert one.taken
    assert one.given > FOUND[form] * one.cost
    assert check(program, found.program).result == "exact"


def test_a_nonlinear_function_stays_between() -> None:
    b = gl.Builder("relu between")
    program = b.finish(conv(b, b.relu(conv(b, image(b), 64)), 16, 3))
    assert cheapest_algebra(program, PRICES).program is program


def test_a_padding_that_is_not_of_zeros_stays() -> None:
    b = gl.Builder("lowest values")
    program = b.finish(conv(b, b.pad(image(b, 64), [(0, 0), (0, 0), (2, 2), (2, 2)], "min-padding"), 16, 3))
    assert cheapest_algebra(program, PRICES).program is program


def test_a_padding_between_windows_is_not_lost() -> None:
    """Two 3x3 with a padding between them are no 5x5: at the border the inner one is 0 and not what its window sums."""
    b = gl.Builder("padding between")
    program = b.finish(conv(b, conv(b, image(b, 4), 32, 3), 4, 3)).seeded_constants(0)
    found = cheapest_algebra(program, PRICES, margin=-10.0)
    assert check(program, found.program, layers=False).result == "exact"


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize(
    "form", [parallel_windows, pool_before, pointwise_then_windows], ids=lambda form: form.__name__
)
def test_small_images(form: Form, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    b = gl.Builder(form.__name__)
    monkeypatch.setitem(globals(), "image", lambda b, channels=16, _=0: b.input("x", (2, channels, size, 1)))
    program = b.finish(form(b)).seeded_constants(0)
    found = cheapest_algebra(program, PRICES, margin=-10.0)
    assert check(program, found.program, layers=False).result == "exact"


@pytest.mark.parametrize(("words", "found"), [(500, True), (MAX_TABLE // 16 + 1, False)])
def test_embeddings_times_weights_are_a_table_unless_it_is_large(words: int, found: bool) -> None:
    b = gl.Builder("embeddings")
    x = b.gather(b.constant("e", (words, 16)), b.input("tokens", (4,), "int64"))
    program = b.finish(b.linear(x, b.constant("w", (16, 16))))
    best = cheapest_algebra(program, PRICES)
    assert (best.program.term is not program.term) == found
