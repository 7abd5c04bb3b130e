"""Runs PyTorch's own samples of its operators through the import, and compares with PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from glenside.importers.torch.export import decompositions, graph_of_fx, traced
from glenside.importers.torch.walk import program_of, target_of
from glenside.ir.errors import BadInput
from glenside.ir.torch_tensors import array_of
from glenside.semantics.interpreter import evaluate

UNSPECIFIED = (
    *("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"),
    *("topk", "sort", "argsort", "msort", "kthvalue", "mode", "torch.ops.aten._flash_attention_forward"),
)
"""Operators whose elements, or whose order of equal elements, PyTorch leaves open."""
TOLERANCE = 1e-5
"""Relative to the largest number of a result, at least 1."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of a sample (passed, refused, wrong, decomposition or skipped), and the operators of its graph."""

    outcome: str
    words: str
    operators: frozenset[str]


def judged(function: Callable[..., Any], arguments: Any, table: Any) -> Verdict:
    """Returns the verdict of one call; `arguments` is any tree of tensors and other values."""
    import torch
    from torch.utils import _pytree as pytree

    leaves, spec = pytree.tree_flatten(arguments)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[i] for i in places]

    def flat(*given: Any) -> list[Any]:
        own = list(leaves)
        for i, tensor in zip(places, given, strict=True):
            own[i] = tensor
        args, kwargs = pytree.tree_unflatten(own, spec)
        return [x for x in pytree.tree_leaves(function(*args, **kwargs)) if isinstance(x, torch.Tensor)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with torch.no_grad():
                want = [array_of(x).copy() for x in flat(*(tensor.clone() for tensor in tensors))]
            module = traced(flat, tensors, table)
        except Exception as error:  # eager or tracing refuses the sample, or its dtype is none of ours
            return Verdict("skipped", f"{type(error).__name__}: {str(error)[:200]}", frozenset())
    nodes = [n for n in module.graph.nodes if n.op == "call_function"]
    used = frozenset(target_of(str(n.target))[0] for n in nodes if str(n.target).count(".") >= 2)
    try:
        program = program_of(graph_of_fx(module))
        inputs = {name: array_of(tensor) for name, tensor in zip(program.inputs, tensors, strict=True)}
        (found,) = evaluate([program.term], {**program.constants, **inputs})
    except BadInput as error:
        return Verdict("refused", error.message, used)
    got = list(found) if isinstance(found, tuple) else [found]
    outcome, words = _compared(got, want)
    if outcome == "wrong":
        with torch.no_grad():
            own = [array_of(x) for x in module(*tensors)]
        if _compared(got, own)[0] == "passed":
            return Verdict("decomposition", f"PyTorch's own decomposition differs from its operator: {words}", used)
    return Verdict(outcome, words, used)


def _compared(got: list[Any], want: list[Any]) -> tuple[str, str]:
    for i, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return "wrong", f"result {i}: {ours.shape} {ours.dtype}, PyTorch {theirs.shape} {theirs.dtype}"
        if theirs.dtype.kind in "biu":
            if not np.array_equal(ours, theirs):
                return "wrong", f"result {i}: {ours.ravel()[:6]}, PyTorch {theirs.ravel()[:6]}"
            continue
        a, b = ours.astype(np.float64), theirs.astype(np.float64)
        finite = np.abs(b[np.isfinite(b)])
        bound = TOLERANCE * max(1.0, finite.max(initial=0.0))
        if not np.allclose(a, b, rtol=TOLERANCE, atol=bound, equal_nan=True):
            at = np.argmax(np.nan_to_num(np.abs(a - b), nan=np.inf).ravel())
            return "wrong", f"result {i}, element {at}: {a.ravel()[at]}, PyTorch {b.ravel()[at]}"
    return "passed", ""


def samples(info: Any, dtype: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the arguments of each sample of an operator, the same in every run."""
    import torch

    torch.manual_seed(0)
    for sample in info.sample_inputs("cpu", dtype, requires_grad=False):
        yield (sample.input, *sample.args), dict(sample.kwargs)


__all__ = ["UNSPECIFIED", "Verdict", "decompositions", "judged", "samples"]
