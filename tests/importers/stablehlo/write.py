"""Writes the samples of this folder with JAX: text of StableHLO, with inputs and what JAX computes for them.

python tests/importers/stablehlo/write.py
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax, nn

HERE = Path(__file__).parent


def _drawn(*dims: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng((seed, *dims)).standard_normal(dims) / 2).astype(np.float32)


def mlp(params: Any, x: Any) -> Any:
    """A perceptron of three layers; weights are arguments."""
    for layer in params[:-1]:
        x = nn.gelu(x @ layer["kernel"] + layer["bias"])
    return {"logits": x @ params[-1]["kernel"], "probabilities": nn.softmax(x @ params[-1]["kernel"])}


_KERNELS = _drawn(3, 3, 2, 6), _drawn(3, 3, 1, 6), _drawn(6, 5)


def convolutions(x: Any) -> Any:
    """Convolutions, one of them by channels, with both kinds of pooling; weights are constants."""
    numbers = ("NHWC", "HWIO", "NHWC")
    first, second, last = _KERNELS
    x = nn.relu(lax.conv_general_dilated(x, first, (1, 1), "SAME", dimension_numbers=numbers))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    x = lax.conv_general_dilated(x, second, (1, 1), "VALID", dimension_numbers=numbers, feature_group_count=6)
    x = lax.reduce_window(nn.silu(x), 0.0, lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "VALID") / 4
    logits = x.mean((1, 2)) @ last
    return logits, jnp.argmax(logits, -1)


def attention(table: Any, params: Any, tokens: Any) -> Any:
    """Causal attention over rows of an embedding, and the likeliest tokens."""
    x = table[tokens]
    q, k, v = (jnp.einsum("td,dhe->the", x, params[name]) for name in "qkv")
    scores = jnp.einsum("the,she->hts", q, k) / np.sqrt(q.shape[-1])
    causal = jnp.tril(jnp.ones(scores.shape[1:], bool))
    mixed = jnp.einsum("hts,she->the", nn.softmax(jnp.where(causal, scores, -jnp.inf), axis=-1), v)
    y = x + mixed.reshape(x.shape)
    y = (y - y.mean(-1, keepdims=True)) * lax.rsqrt(y.var(-1, keepdims=True) + 1e-5)
    return lax.top_k(y @ table.T, 3)


def lstm(params: Any, x: Any) -> Any:
    """A recurrence by `lax.scan`, whose steps are stacked."""

    def step(state: Any, row: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(row @ params["w"] + h @ params["u"] + params["b"], 4, -1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
        h = nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((x.shape[1], params["u"].shape[0]))
    (h, _), rows = lax.scan(step, (zero, zero), x)
    return rows, h


SAMPLES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], bool]] = {
    "mlp": (
        mlp,
        (
            [{"kernel": _drawn(a, b), "bias": _drawn(b)} for a, b in ((6, 16), (16, 12))] + [{"kernel": _drawn(12, 4)}],
            _drawn(3, 6, seed=1),
        ),
        True,
    ),
    "convolutions": (convolutions, (_drawn(2, 9, 8, 2),), False),
    "attention": (
        attention,
        (
            _drawn(20, 8),
            {name: _drawn(8, 2, 4, seed=n) for n, name in enumerate("qkv")},
            np.arange(5, dtype=np.int32) * 3,
        ),
        True,
    ),
    "lstm": (lstm, ({"w": _drawn(3, 16), "u": _drawn(4, 16), "b": _drawn(16)}, _drawn(6, 2, 3)), False),
}
"""Name -> function, examples, and whether `jax.export` writes the text, or `lower(..).as_text()`."""

if __name__ == "__main__":
    for name, (function, examples, exported) in SAMPLES.items():
        jitted = jax.jit(function)
        text = export.export(jitted)(*examples).mlir_module() if exported else jitted.lower(*examples).as_text()
        text = text.replace(f'"{Path(__file__)}"', '"write.py"')
        (HERE / f"{name}.mlir").write_text(text)
        given = {f"input_{n}": np.asarray(x) for n, x in enumerate(jax.tree_util.tree_leaves(examples))}
        results = jax.tree_util.tree_leaves(function(*examples))
        np.savez(HERE / f"{name}.npz", **given, **{f"output_{n}": np.asarray(x) for n, x in enumerate(results)})
