"""Tests `torch.compile(.., backend="glenside")`, where PyTorch is installed."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from glenside.dynamo import backend
from glenside.dynamo.options import options_of
from glenside.ir.errors import BadInput

PLAIN = {"target": "none"}


@pytest.fixture(name="torch")
def _torch() -> Iterator[Any]:
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield torch
    torch._dynamo.reset()


def test_unknown_options_are_refused() -> None:
    assert options_of(None).target == "cpu"
    with pytest.raises(BadInput, match="has no option freez; did you mean freeze"):
        options_of({"freez": True})
    with pytest.raises(BadInput, match="there is no target 'gpu'"):
        options_of({"target": "gpu"})


def test_inference_at_several_sizes(torch: Any) -> None:
    nn = torch.nn
    module = nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.LayerNorm(8), nn.Linear(8, 3)).eval()
    compiled = torch.compile(module, backend=backend, options=PLAIN)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for rows in (4, 3, 5, 1):
            x = torch.randn(rows, 6)
            assert torch.allclose(compiled(x), module(x), atol=1e-6)


@pytest.mark.parametrize("freeze", [False, True])
def test_changed_weights_are_seen(torch: Any, freeze: bool) -> None:
    module = torch.nn.Linear(6, 3).eval()
    compiled = torch.compile(module, backend=backend, options={**PLAIN, "freeze": freeze})
    x = torch.randn(4, 6)
    with torch.no_grad():
        for _ in range(3):
            assert torch.allclose(compiled(x), module(x), atol=1e-6)
            module.weight.mul_(2)


def test_a_training_step_has_the_gradients_of_pytorch(torch: Any) -> None:
    nn = torch.nn
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5)
    )
    eager, x, y = copy.deepcopy(module), torch.randn(4, 3, 6, 6), torch.randint(0, 5, (4,))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="glenside leaves")
        nn.functional.cross_entropy(torch.compile(module, backend=backend, options=PLAIN)(x), y).backward()
    nn.functional.cross_entropy(eager(x), y).backward()
    for ours, theirs in zip(module.parameters(), eager.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, atol=1e-6)
    for ours, theirs in zip(module.buffers(), eager.buffers(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def test_attention_has_the_gradients_of_pytorch(torch: Any) -> None:
    def attention(q: Any, k: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True)

    inputs = [torch.randn(2, 2, 3, 4, requires_grad=True) for _ in range(2)]
    weights = torch.randn(2, 2, 3, 4)
    compiled = torch.compile(attention, backend=backend, options=PLAIN)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        found = torch.autograd.grad((compiled(*inputs) * weights).sum(), inputs)
    for own, right in zip(found, torch.autograd.grad((attention(*inputs) * weights).sum(), inputs), strict=True):
        assert torch.allclose(own, right, atol=1e-5)


def test_results_without_a_meaning_are_left_to_pytorch(torch: Any) -> None:
    bags = torch.nn.EmbeddingBag(9, 4)
    own = copy.deepcopy(bags)
    compiled = torch.compile(own, backend=backend, options=PLAIN)
    with pytest.warns(UserWarning, match="_embedding_bag.*: this result of the operator has no meaning here"):
        found = compiled(torch.tensor([[1, 2, 2], [0, 3, 4]]))
    found.square().sum().backward()
    bags(torch.tensor([[1, 2, 2], [0, 3, 4]])).square().sum().backward()
    assert torch.allclose(own.weight.grad, bags.weight.grad, atol=1e-5)


def test_expanded_results(torch: Any) -> None:
    def expanded(x: Any) -> Any:
        return (x + 1)[:, :1].expand(3, 4), (x * 2).t()

    x = torch.randn(3, 4)
    for own, right in zip(torch.compile(expanded, backend=backend, options=PLAIN)(x), expanded(x), strict=True):
        assert torch.equal(own, right)
        assert own.stride() == right.stride()


def test_refused_operators_are_left_to_pytorch_and_named_once(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glenside.dynamo.graph_functions._said", set())

    def function(x: Any) -> Any:
        y = torch.relu(x @ x.T) + 1
        return torch.softmax(torch.fft.fft(y).real * 2, -1).sum(0), y, x

    compiled, x = torch.compile(function, backend=backend, options=PLAIN), torch.randn(5, 5)
    with pytest.warns(UserWarning, match="glenside leaves a part to PyTorch: node _fft_r2c") as caught:
        found = compiled(x)
    assert len([w for w in caught if "glenside" in str(w.message)]) == 1
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found, function(x), strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        compiled(torch.randn(5, 5))


def test_the_entry_point_is_declared() -> None:
    from importlib.metadata import entry_points

    found = [point for point in entry_points(group="torch_dynamo_backends") if point.name == "glenside"]
    if not found:
        pytest.skip("this installation is older than the entry point")
    assert found[0].load() is backend
