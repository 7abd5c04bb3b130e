"""Compares functions of JAX with the programs that `gl.from_jax` returns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import glenside as gl
from glenside.ir.errors import BadInput

jax = pytest.importorskip("jax")
jnp, lax, nn = jax.numpy, jax.lax, jax.nn
export = pytest.importorskip("jax.export")


def _drawn(*dims: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng((seed, *dims))
    if dtype.startswith("float") or dtype == "bfloat16":
        return np.asarray(jnp.asarray(draw.standard_normal(dims), dtype))
    return draw.integers(0, 2 if dtype == "bool" else 5, dims).astype(dtype)


X, Y, ROW = _drawn(3, 4, 5), _drawn(3, 4, 5, seed=1), _drawn(5)
IMAGES, PLACES, TRUTHS = _drawn(2, 7, 6, 4), _drawn(3, 2, dtype="int32"), _drawn(3, 4, 5, dtype="bool")
WHOLE = _drawn(3, 4, 5, dtype="int32")
ONE = np.asarray(2, np.int32)
ENDS = np.array([0, 1, -1, 7, -7, 31, 32, 2**31 - 1, -(2**31)], np.int32)
LEFT, RIGHT = (own.ravel() for own in np.meshgrid(ENDS, ENDS))
ODD = np.array([0.0, -0.0, 1.5, -1.5, 300, -300, 3e9, -3e9, np.inf, -np.inf, np.nan], np.float32)
ROWS = np.array([0, 3, 1, 4], np.int32)


def _convolved(x: Any, w: Any, **options: Any) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, w, **({"window_strides": (1, 1), "padding": "SAME"} | options), dimension_numbers=numbers
    )


def _looped(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, s: s * 0.5 + x[i], jnp.zeros(x.shape[1:]))


def _scanned(x: Any, reverse: bool = False) -> Any:
    return lax.scan(lambda s, row: (s + row, s * row), jnp.zeros(x.shape[1:]), x, reverse=reverse)


def _pooled(x: Any, padding: Any, kind: str = "max") -> Any:
    join, start = (lax.max, -jnp.inf) if kind == "max" else (lax.min, jnp.inf)
    return lax.reduce_window(x, start, join, (1, 3, 2, 1), (1, 2, 1, 1), padding)


def _attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bhd,thd->bht", q, k) / np.sqrt(q.shape[-1])
    mask = jnp.arange(k.shape[0])[None, None, :] < 2
    return jnp.einsum("bht,thd->bhd", nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1), v)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    **{
        name: (getattr(jnp, name), (X,))
        for name in "exp sin cos tanh abs sign floor ceil round square cbrt sinh".split()
    },
    **{name: (getattr(jnp, name), (np.abs(X) + 0.5,)) for name in "log sqrt log1p expm1 exp2 log2 reciprocal".split()},
    **{name: (getattr(nn, name), (X,)) for name in "relu gelu silu softplus sigmoid elu softmax log_softmax".split()},
    **{name: (getattr(jnp, name), (X, Y)) for name in "add subtract multiply divide maximum minimum arctan2".split()},
    **{
        f"{name} of integers": (getattr(jnp, name), (WHOLE, WHOLE.T.reshape(3, 4, 5) + 1))
        for name in "add floor_divide mod power left_shift right_shift bitwise_xor".split()
    },
    **{
        name: (getattr(jnp, name), (X,))
        for name in "sum mean max min prod var std argmax argmin ravel transpose".split()
    },
    **{name: (partial(getattr(jnp, name), axis=1), (X,)) for name in "cumsum cumprod sort argsort flip median".split()},
    **{f"{name} of truths": (partial(getattr(jnp, name), axis=1), (TRUTHS,)) for name in ("any", "all", "sum")},
    **{f"{name} of an axis": (partial(getattr(jnp, name), axis=-1), (X,)) for name in "max argmax sum mean".split()},
    "isnan": (jnp.isfinite, (np.array([1, np.inf, np.nan, -np.inf], np.float32),)),
    "rsqrt": (lambda x: lax.rsqrt(x * x + 1), (X,)),
    "powers": (lambda x: (x**2, x**3, x**7, x**-2, jnp.abs(x) ** 0.3), (X,)),
    "clip": (lambda x: jnp.clip(x, -0.5, 0.5), (X,)),
    "where": (jnp.where, (TRUTHS, X, Y)),
    "choices": (lambda i, x: lax.select_n(i, x, 2 * x, 3 * x), (WHOLE % 3, X)),
    "casts": (lambda x: (x.astype(jnp.int32), x.astype(jnp.bfloat16), x.astype(bool)), (3 * X,)),
    "half": (lambda x: (x * x).sum(1), (_drawn(3, 40, dtype="bfloat16"),)),
    "broadcast": (lambda x, r: x + r, (X, ROW)),
    "padded": (lambda x: jnp.pad(x, ((1, 2), (0, 0), (3, 0)), constant_values=1.5), (X,)),
    "padded inside": (lambda x: lax.pad(x, 0.0, ((1, -1, 2), (-1, 1, 0), (0, 0, 1))), (X,)),
    "slices": (lambda x: (x[1:, ::2, -1], x[:, ::-1, 1:3], x[..., None, 0]), (X,)),
    "stacked": (lambda x, y: (jnp.stack([x, y], 1), jnp.concatenate([x, y], -1), jnp.tile(x, (2, 1, 1))), (X, Y)),
    "split": (lambda x: jnp.split(x, [1, 3], axis=1), (X,)),
    "rolled": (lambda x: jnp.roll(x, 2, axis=1), (X,)),
    "arange": (lambda x: x + jnp.arange(5) + jnp.eye(5)[0] + jnp.tril(jnp.ones((4, 5))), (X,)),
    "matmul": (jnp.matmul, (X, _drawn(5, 6))),
    "batched": (jnp.matmul, (X, _drawn(3, 5, 2))),
    "einsum": (lambda a, b: jnp.einsum("abc,dca->bd", a, b), (X, _drawn(6, 5, 3))),
    "integers": (
        lambda a, b: lax.dot(a, b, preferred_element_type=jnp.int32),
        (_drawn(3, 4, dtype="int8"), _drawn(4, 2, dtype="int8")),
    ),
    "attention": (_attention, (_drawn(2, 3, 8), _drawn(5, 3, 8), _drawn(5, 3, 8, seed=2))),
    "convolution": (_convolved, (IMAGES, _drawn(3, 3, 4, 8))),
    "strided": (partial(_convolved, window_strides=(2, 1), rhs_dilation=(1, 2)), (IMAGES, _drawn(3, 2, 4, 8))),
    "grouped": (partial(_convolved, feature_group_count=2), (IMAGES, _drawn(3, 3, 2, 6))),
    "depthwise": (partial(_convolved, feature_group_count=4, padding="VALID"), (IMAGES, _drawn(3, 3, 1, 4))),
    "transposed": (partial(_convolved, lhs_dilation=(2, 3), padding=((1, 0), (2, 1))), (IMAGES, _drawn(3, 3, 4, 5))),
    "max pool": (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 2, 1), (1, 2, 2, 1), "SAME"), (IMAGES,)),
    "min pool": (lambda x: lax.reduce_window(x, jnp.inf, lax.min, (1, 2, 2, 1), (1, 1, 2, 1), "VALID"), (IMAGES,)),
    "average pool": (lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "SAME") / 4, (IMAGES,)),
    "embedding": (lambda t, i: t[i], (_drawn(7, 5), PLACES)),
    "rows": (lambda x, i: (x[:, i], x[:, i, 1], x[i, :, i % 5]), (_drawn(5, 6, 5), PLACES)),
    "outside": (lambda x, i: x.at[i].get(mode="fill"), (X, PLACES)),
    "clipped": (lambda x, i: jnp.take(x, i, axis=0, mode="clip"), (X, PLACES)),
    "along": (lambda x, i: jnp.take_along_axis(x, i, axis=1), (X, _drawn(3, 2, 5, dtype="int32") % 4)),
    "set": (lambda x, i, y: (x.at[i].set(1.0), x.at[1].set(2.0), x.at[:, 1:3].add(y[:, :2])), (X, PLACES[:, 0], Y)),
    "added": (lambda x, i, y: x.at[i % 3].add(y[0]), (X, PLACES[:, 1], Y)),
    "dynamic": (lambda x, n: lax.dynamic_slice(x, (n, 0, n), (2, 4, 3)), (X, ONE)),
    "updated": (lambda x, y, n: lax.dynamic_update_slice(x, y, (0, n, 0)), (X, Y[:, :1], ONE)),
    "updated twice": (lambda x, y, n: lax.dynamic_update_slice(x, y, (n, n, 0)), (X, Y[:2, :3], ONE)),
    "updated at a known place": (lambda x, y: lax.dynamic_update_slice(x, y, (1, 2, 0)), (X, Y[:2, :2])),
    "sorted by two": (lambda a, b: lax.sort((a, b), num_keys=2), (_drawn(20, dtype="int32"), _drawn(20))),
    "largest": (lambda x: lax.top_k(x, 3), (X,)),
    "running": (
        lambda x: (lax.cummax(x, axis=1), lax.cummin(x, axis=2, reverse=True), lax.cumsum(x, reverse=True)),
        (X,),
    ),
    "loop": (_looped, (X,)),
    "scan": (_scanned, (X,)),
    "backwards": (partial(_scanned, reverse=True), (X,)),
    "known branch": (lambda x: lax.cond(x.shape[0] > 2, jnp.sin, jnp.cos, x), (X,)),
    "branch": (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.tanh], x), (ONE, X)),
    "gradient": (jax.grad(lambda w, x: (jnp.tanh(x @ w) ** 2).sum()), (_drawn(5, 2), X)),
    "jitted": (jax.jit(lambda x: jnp.dot(x, x.T)), (X[0],)),
    "mapped": (jax.vmap(lambda x, i: x[i]), (_drawn(3, 6), _drawn(3, 2, dtype="int32"))),
    **{
        f"{name} at the ends of integers": (getattr(lax, name), (LEFT, RIGHT))
        for name in "div rem shift_left shift_right_arithmetic shift_right_logical".split()
    },
    "arithmetic shifts of unsigned integers": (
        lax.shift_right_arithmetic,
        (np.array([255, 128, 127, 200], np.uint8), np.array([1, 7, 3, 9], np.uint8)),
    ),
    "casts beyond the range": (lambda x: [x.astype(d) for d in ("int8", "uint8", "int32", "uint32", "int16")], (ODD,)),
    "bits": (lambda x: (jnp.signbit(x), jnp.copysign(2.0, x), lax.bitcast_convert_type(x, jnp.int32)), (ODD,)),
    "total order": (lambda x: jnp.digitize(x, jnp.array([-1.0, 0.0, 2.0])), (ODD,)),
    "bits of many integers": (
        lambda x: [
            kind.reduce(x, axis=a) for kind in (jnp.bitwise_or, jnp.bitwise_and, jnp.bitwise_xor) for a in (1, 2)
        ],
        (WHOLE - 3,),
    ),
    "odd numbers of truths": (lambda x: lax.reduce(x, False, lax.bitwise_xor, (0, 2)), (TRUTHS,)),
    "products of truths": (jnp.matmul, (TRUTHS[0], TRUTHS[1].T)),
    "maxima of nothing": (lambda x: (jnp.max(x, 0, initial=-9), jnp.min(x, 0, initial=9)), (X[:0],)),
    "windows of spread elements": (
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2), (1, 1, 1), "VALID", base_dilation=(1, 2, 3)),
        (X,),
    ),
    "least whole numbers of windows": (
        lambda x: lax.reduce_window(x, np.int32(2**31 - 1), lax.min, (1, 2, 3), (1, 1, 2), "SAME"),
        (WHOLE - 3,),
    ),
    "gradient of maxima of windows": (jax.grad(lambda x: (_pooled(x, "SAME") ** 2).sum()), (IMAGES,)),
    "gradient of equal maxima": (
        jax.grad(lambda x: (_pooled(x, ((0, 0), (1, 2), (0, 1), (0, 0))) ** 2).sum()),
        (np.round(IMAGES),),
    ),
    "gradient of minima": (jax.grad(lambda x: (_pooled(x, "VALID", "min") ** 2).sum()), (np.round(IMAGES),)),
    "gradient of grouped convolutions": (
        jax.grad(lambda w, x: (_convolved(x, w, feature_group_count=2) ** 2).sum()),
        (_drawn(3, 2, 2, 6), IMAGES),
    ),
    "platforms": (lambda x: lax.platform_dependent(x, tpu=jnp.sin, cpu=jnp.cos, default=jnp.tanh), (X,)),
    "no platform": (lambda x: lax.platform_dependent(x, tpu=jnp.sin, default=jnp.tanh), (X,)),
    "rows of reversed ones": (lambda x, i: (x[::-1][i], x[::-1, ::-1][:, i % 4]), (_drawn(5, 4), ROWS)),
    "nothing": (lambda x: (x[:0].sum(0), x[:0] * 2), (X,)),
}


@pytest.mark.parametrize("name", CASES)
def test_programs_compute_what_jax_does(name: str) -> None:
    function, examples = CASES[name]
    program = gl.from_jax(function, *examples)
    want = jax.tree_util.tree_leaves(function(*jax.tree_util.tree_map(jnp.asarray, examples)))
    values = {own: np.asarray(x) for own, x in zip(program.inputs, jax.tree_util.tree_leaves(examples), strict=True)}
    (found,) = gl.evaluate([program.term], {**program.constants, **values})
    for own, other in zip(found if isinstance(found, tuple) else (found,), want, strict=True):
        other = np.asarray(other)
        assert (own.shape, own.dtype) == (other.shape, other.dtype)
        accurate = 1e-2 if str(other.dtype) in ("bfloat16", "float16") else 2e-5
        np.testing.assert_allclose(own.astype(np.float64), other.astype(np.float64), rtol=accurate, atol=accurate)


@pytest.mark.parametrize("writer", ["lower", "export"])
@pytest.mark.parametrize("name", CASES)
def test_text_of_stablehlo_says_the_same(name: str, writer: str) -> None:
    function, examples = CASES[name]
    jitted, arrays = jax.jit(function), jax.tree_util.tree_map(jnp.asarray, examples)
    text = jitted.lower(*arrays).as_text() if writer == "lower" else export.export(jitted)(*arrays).mlir_module()
    leaves = [np.asarray(x) for x in jax.tree_util.tree_leaves(examples)]
    results = []
    for program in (gl.from_stablehlo(text), gl.from_jax(function, *examples)):
        values = dict(zip((own.name for own in program.signature.inputs), leaves, strict=True))
        (found,) = gl.evaluate([program.term], {**program.constants, **values})
        results.append(found if isinstance(found, tuple) else (found,))
    for own, other in zip(*results, strict=True):
        assert (own.shape, own.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(own.astype(np.float64), other.astype(np.float64), rtol=1e-6, atol=1e-6)


def test_parameters_are_constants_that_are_named_by_their_keys() -> None:
    def network(params: Any, x: Any) -> Any:
        hidden = nn.relu(x @ params["first"]["kernel"] + params["first"]["bias"])
        return {"logits": hidden @ params["last"], "hidden": hidden}

    params = {"first": {"kernel": _drawn(5, 8), "bias": _drawn(8)}, "last": _drawn(8, 3)}
    program = gl.from_jax(network, params, X[0], constants="params")
    assert list(program.inputs) == ["x"]
    assert sorted(program.constants_declared) == ["params.first.bias", "params.first.kernel", "params.last"]
    assert program.signature.outputs == ("hidden", "logits")
    assert gl.from_jax(network, params, X[0], constants=0).term == program.term
    want = network(params, X[0])
    for name, found in zip(program.signature.outputs, gl.compile(program)(X[0]), strict=True):
        np.testing.assert_allclose(found, want[name], rtol=1e-5, atol=1e-5)
    as_inputs = gl.from_jax(network, params, jax.ShapeDtypeStruct((4, 5), "float32"))
    assert list(as_inputs.inputs) == ["params.first.bias", "params.first.kernel", "params.last", "x"]


@pytest.mark.parametrize(
    ("function", "examples", "words"),
    [
        (lambda x: jnp.linalg.svd(x)[1], (X,), r"the primitive svd \(.*test_jax.py:\d+\): has no meaning here"),
        (lambda x: x + jax.random.normal(jax.random.key(0), x.shape), (X,), "draws random numbers"),
        (lambda x: lax.while_loop(lambda s: s.sum() < 9, lambda s: s + 1, x), (X,), "iterations depends on data"),
        (lambda x: x.real + 1j * x, (X,), "complex64"),
        (lambda x: x.at[np.array([0, 2])].apply(jnp.sin), (X,), "applies a function to the elements that it replaces"),
        (lambda x: x @ x, (X,), "jax does not trace the function: TypeError"),
        (lambda x: int(x.sum()), (X,), "jax does not trace the function"),
        (lambda x: None, (X,), "returns no array"),
        ("sin", (X,), "takes a function, got str"),
        (lambda x: x, (np.zeros(3, "complex64"),), "argument x has dtype complex64"),
    ],
)
def test_what_has_no_meaning_is_refused_by_name(function: Any, examples: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        gl.from_jax(function, *examples)


def test_constants_that_are_no_arguments_are_refused() -> None:
    with pytest.raises(BadInput, match="no argument 3"):
        gl.from_jax(jnp.sin, X, constants=3)
    with pytest.raises(BadInput, match="its example must have values"):
        gl.from_jax(jnp.sin, jax.ShapeDtypeStruct((3,), "float32"), constants=0)
