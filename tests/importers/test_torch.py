"""Tests `gl.from_torch` and tensors as arguments of compiled functions, where PyTorch is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import glenside as gl
from glenside.importers.torch.reference import CORE
from glenside.ir.errors import BadInput, OutOfBounds
from glenside.ir.torch_tensors import array_of, tensor_of

torch = pytest.importorskip("torch")
nn = torch.nn


def _agrees(module: Any, *args: Any, tolerance: float = 1e-5, **kwargs: Any) -> gl.Program:
    """Compares a program with its module on the example inputs; returns the program."""
    with torch.no_grad():
        want = torch.utils._pytree.tree_leaves(module(*args, **kwargs))
    program = gl.from_torch(module, args, kwargs)
    tensors = [x for x in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    inputs = {name: array_of(x) for name, x in zip(program.inputs, tensors, strict=True)}
    (found,) = gl.evaluate([program.term], {**program.constants, **inputs})
    found = found if isinstance(found, tuple) else (found,)
    for ours, theirs in zip(found, (x for x in want if isinstance(x, torch.Tensor)), strict=True):
        own = tensor_of(np.ascontiguousarray(ours))
        assert own.dtype == theirs.dtype
        assert torch.allclose(own.double(), theirs.double(), rtol=tolerance, atol=tolerance)
    return program


def test_a_network_keeps_the_names_of_its_parameters_and_shares_their_memory() -> None:
    network = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)).eval()
    program = _agrees(network, torch.randn(2, 3, 21, 17))
    assert list(program.inputs) == ["input"]
    assert set(program.constants) == {"0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var"}
    assert np.shares_memory(program.constants["0.weight"], network[0].weight.detach().numpy())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_an_encoder_layer_in_each_float(dtype: Any) -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 24, batch_first=True, activation="gelu").to(dtype).eval()
    half = dtype in (torch.bfloat16, torch.float16)
    _agrees(layer, torch.randn(2, 5, 16, dtype=dtype), tolerance=5e-2 if half else 1e-5)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int8, torch.int64, torch.uint8])
def test_shifts_by_all_numbers_of_bits(dtype: Any) -> None:
    info = torch.iinfo(dtype)
    x = torch.tensor([0, 1, 7, 100, info.max, info.min, info.min + 1], dtype=dtype)
    by = torch.arange(info.bits + 3, dtype=dtype)[:, None]
    _agrees(lambda x, by: (x >> by, x << by, x >> (info.bits - 1)), x, by)


class _Tree(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 4)
        self.head = nn.Linear(4, 11, bias=False)
        self.head.weight = self.table.weight
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, batch: dict[str, Any], *, shift: Any = None) -> dict[str, Any]:
        x = self.table(batch["ids"]) * self.scale
        x = x if shift is None else x + shift
        return {"logits": self.head(x), "parts": (x.sum(-1), batch["ids"] + 1), "nothing": None}


def test_the_names_of_core_aten_are_those_of_pytorch() -> None:
    found = set()
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        overloads = packet.overloads() if hasattr(packet, "overloads") else []
        if any(torch.Tag.core in getattr(packet, overload).tags for overload in overloads):
            found.add(name)
    assert len(found ^ set(CORE)) <= 5  # versions differ in a few


def test_trees_of_inputs_and_outputs_are_flat_and_named() -> None:
    program = _agrees(_Tree(), {"ids": torch.tensor([[1, 2, 10]])}, shift=torch.randn(4))
    assert [t.dtype for t in program.inputs.values()] == ["int64", "float32"]
    assert program.signature.outputs == ("logits", "parts.0", "parts.1")
    assert sorted(program.constants) == ["scale", "table.weight"]  # the head's weight is the table's
    assert program.signature.remarks == ("output nothing is None, no tensor: it is left out",)


def test_functions_and_exported_programs_are_taken_too() -> None:
    _agrees(lambda x, y: (torch.atan2(x, y), x[:, [0, 2]] + y[:, 1:3]), torch.randn(4, 5), torch.randn(4, 5))
    exported = torch.export.export(nn.Linear(3, 2), (torch.randn(4, 3),))
    assert list(gl.from_torch(exported).inputs) == ["input"]
    assert list(gl.from_torch(nn.Linear(3, 2), torch.randn(4, 3)).inputs) == ["input"]
    assert list(gl.from_torch(nn.Linear(3, 2), {"input": torch.randn(4, 3)}).inputs) == ["input"]
    for function, names in ((lambda x, y: x @ y, ["x", "y"]), (torch.matmul, ["args_0", "args_1"])):
        assert list(gl.from_torch(function, (torch.randn(4, 3), torch.randn(3))).inputs) == names


class _Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x + self.calls


class _Adding(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.add_(1)


class _StaticCache(nn.Module):
    """Attention over a cache ()(1 heads rows head), of which rows are replaced, as transformers' StaticCache does."""

    def forward(self, k: Any, at: Any, keys: Any, values: Any) -> Any:
        keys.index_copy_(2, at, k)
        values[:, :, at] = k * 2
        mask = torch.arange(8)[None] <= at[:, None]
        return torch.softmax((k @ keys.mT).masked_fill(~mask, -1e9), -1) @ values


@pytest.mark.needs_compiler
@pytest.mark.parametrize("is_open", [False, True])
def test_inputs_that_change_in_place_are_state(is_open: bool) -> None:
    rows = {2: torch.export.Dim("rows", min=1, max=4)}
    shapes = {"k": rows, "at": {0: rows[2]}, "keys": None, "values": None} if is_open else None
    keys, values = torch.zeros(1, 2, 8, 4), torch.zeros(1, 2, 8, 4)
    example = (torch.randn(1, 2, 2, 4), torch.arange(2), keys.clone(), values.clone())
    program = gl.from_torch(_StaticCache(), example, dynamic_shapes=shapes)
    f = gl.compile(program, "none", state=True)
    assert list(f.state) == ["keys", "values"]
    assert "copied" not in repr(f.state)
    for begin in (0, 2, 6, 1):
        k, at = torch.randn(1, 2, 2, 4), torch.arange(begin, begin + 2)
        want = _StaticCache()(k, at, keys, values)
        np.testing.assert_allclose(f(k, at).numpy(), want.numpy(), atol=1e-5)
        np.testing.assert_array_equal(f.state["values"], values.numpy())
    with pytest.raises(OutOfBounds):
        f(k, torch.tensor([0, 8]))
    np.testing.assert_array_equal(f.state["keys"], keys.numpy())


@pytest.mark.needs_compiler
def test_an_input_that_changes_in_place_is_a_result(tmp_path: Any) -> None:
    exported = torch.export.export(_Adding(), (torch.zeros(3),)).run_decompositions()
    torch.export.save(exported, tmp_path / "adding.pt2")
    for program in (gl.from_torch(_Adding(), (torch.zeros(3),)), gl.load(tmp_path / "adding.pt2")):
        assert program.result_names() == ["output", "next.x"]
        assert any("the new value is the result next.x" in said for said in program.signature.remarks)
        f = gl.compile(program, "none", state=True)
        assert [float(f()[0]) for _ in range(3)] == [1, 2, 3]
        np.testing.assert_array_equal(f.state["x"], [3, 3, 3])


class _Transform(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.fft.fft(x).real


def test_a_refusal_names_the_line_of_the_source() -> None:
    with pytest.raises(BadInput, match=r"test_torch.py:\d+ in forward: return torch.fft.fft"):
        gl.from_torch(_Transform(), (torch.randn(4, 3),))


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (_Counter(), "the module changes its buffer calls in place"),
        (nn.BatchNorm1d(3), "module.eval\\(\\) stops batch norms from changing it"),
        (nn.Sequential(nn.Dropout(0.5)), "dropout in training draws random numbers without a seed"),
        (lambda x: x + torch.rand(3), "node rand .*: the operator rand is refused: random numbers"),
        (lambda x: torch.nonzero(x), "depends on data"),
        (lambda x: torch.fft.fft(x).real, "node _fft_r2c .*the operator _fft_r2c is refused: complex"),
        (lambda x: torch.linalg.svd(x)[1], "the operator aten._linalg_svd.default has no meaning here"),
        (lambda x: x if x.sum() > 0 else -x, "torch.export does not export"),
        (3, "from_torch takes an nn.Module, a function or an ExportedProgram, got int"),
        (lambda x: 3, "the module returns no tensor"),
    ],
)
def test_what_is_refused_is_named(module: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        gl.from_torch(module, (torch.randn(4, 3),))


def test_a_module_without_values_is_refused_and_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with torch.device("meta"):
        module = nn.Linear(3, 2)
    with pytest.raises(BadInput, match=r"requires a tensor of the CPU, got one on meta; move the module with .cpu"):
        gl.from_torch(module, (torch.randn(4, 3, device="meta"),))
    with pytest.raises(BadInput, match="its shapes or branches depend on data"):
        gl.from_torch(lambda x: x[x > 0].sum() if (x > 0).sum() > 3 else x.sum(), (torch.randn(4, 3),))
    assert capfd.readouterr() == ("", "")


def test_wrong_inputs_are_refused_with_a_sentence() -> None:
    dims = {"input": {0: torch.export.Dim("n")}}
    with pytest.raises(BadInput, match=r"the size n has no greatest value: give torch.export.Dim\('n', max=..\)"):
        gl.from_torch(nn.Linear(3, 2), (torch.randn(4, 3),), dynamic_shapes=dims)
    with pytest.raises(BadInput, match=r"torch.export does not export Linear"):
        gl.from_torch(nn.Linear(3, 2), (torch.randn(4, 5),))
    with pytest.raises(BadInput, match="example_inputs is a tuple"):
        gl.from_torch(nn.Linear(3, 2), 3)


class _Attention(nn.Module):
    """Causal attention with a reshape, a mask and a position that depend on the length."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.positions = nn.Embedding(64, 16)

    def forward(self, x: Any, scale: Any) -> Any:
        batch, length, width = x.shape
        x = x + self.positions(torch.arange(length))
        q, k, v = self.qkv(x).view(batch, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return (y.transpose(1, 2).reshape(batch, length, width) * scale).cumsum(1) / length, x.mean((0, 1))


def test_dynamic_shapes_are_programs_with_open_sizes() -> None:
    module, one = _Attention().eval(), torch.randn(1)
    length, batch = torch.export.Dim("length", min=2, max=40), torch.export.Dim("batch", max=3)
    dims = {"x": {0: batch, 1: length}, "scale": None}
    program = gl.from_torch(module, (torch.randn(2, 5, 16), one), dynamic_shapes=dims)
    assert isinstance(program, gl.OpenProgram)
    assert {name: own[1] for name, own in program.ranges.items()} == {"batch": 3, "length": 40}
    for rows, columns in ((1, 40), (3, 2), (2, 17)):
        x = torch.randn(rows, columns, 16)
        own = program.at({"batch": rows, "length": columns})
        (found,) = gl.evaluate([own.term], {**own.constants, "x": x.numpy(), "scale": one.numpy()})
        for a, b in zip(found, module(x, one), strict=True):
            assert np.allclose(a, b.detach().numpy(), atol=1e-5)


@pytest.mark.needs_compiler
@pytest.mark.needs_compiler
@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x @ x.T).tril(x.shape[0] - 3),
        lambda x: torch.full((x.shape[0], x.shape[0]), -1e9).triu(1).softmax(-1) @ x,
        lambda x: nn.functional.interpolate(x.T[None], size=7, mode="nearest"),
    ],
)
def test_masks_and_resizes_of_open_sizes_from_1_on(function: Any) -> None:
    shapes = {"x": {0: torch.export.Dim("n", min=1, max=9)}}
    f = gl.compile(gl.from_torch(_Function(function), (torch.randn(5, 6),), dynamic_shapes=shapes), machine="plain")
    for n in (1, 2, 7, 9):
        x = torch.randn(n, 6)
        assert torch.allclose(f(x), function(x), atol=1e-5)


class _Function(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def test_what_is_not_one_program_is_refused_with_its_node() -> None:
    shapes = {"x": {0: torch.export.Dim("n", min=1, max=9)}}
    program = gl.from_torch(_Function(lambda x: x.cummax(0).values), (torch.randn(5, 6),), dynamic_shapes=shapes)
    with pytest.raises(
        BadInput, match=r"not one program for all sizes \(node cummax \(aten.cummax.default\), test_torch"
    ):
        gl.compile(program, machine="plain")


def test_a_module_with_open_sizes_is_compiled_once() -> None:
    layer = nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.Linear(12, 4)).eval()
    rows = torch.export.Dim("rows", min=1, max=33)
    f = gl.compile(gl.from_torch(layer, (torch.randn(3, 8),), dynamic_shapes=({0: rows},)))
    for n in (1, 7, 33):
        x = torch.randn(n, 8)
        assert np.allclose(f(x), layer(x).detach().numpy(), atol=1e-5)


@pytest.mark.needs_compiler
def test_running_sums_and_norms_over_open_sizes_of_a_function() -> None:
    def norm(x: Any) -> Any:
        return nn.functional.instance_norm(x.cumsum(2)), (x != 0).long().cumsum(0), x.cumprod(2)

    rows = torch.export.Dim("rows", min=1, max=9)
    program = gl.from_torch(norm, (torch.randn(3, 2, 6, 4),), dynamic_shapes={"x": {0: rows, 2: 2 * rows}})
    f = gl.compile(program, "none")
    assert "plain loops" not in str(f.report)
    for n in (1, 5, 9):
        x = torch.randn(n, 2, 2 * n, 4)
        for a, b in zip(f(x), norm(x), strict=True):
            assert np.allclose(a, b, atol=1e-5)


def test_compiled_functions_take_and_return_tensors() -> None:
    linear = nn.Linear(6, 5)
    f = gl.compile(gl.from_torch(linear, torch.randn(4, 6)), None)
    x = torch.randn(4, 6, requires_grad=True)
    assert torch.allclose(f(x), linear(x), atol=1e-6)
    assert torch.allclose(f(input=x.detach().T.contiguous().T), linear(x), atol=1e-6)
    assert isinstance(f(x.detach().numpy()), np.ndarray)
    with pytest.raises(BadInput, match="input requires"):
        f(torch.randn(4, 6, dtype=torch.complex64))


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e4m3fn", "float32", "int64", "bool"])
def test_tensors_and_arrays_share_memory(name: str) -> None:
    tensor = torch.tensor([0.0, 1.0, 2.0]).to(getattr(torch, name))
    array = array_of(tensor)
    assert array.dtype.name == name
    assert array.ctypes.data == tensor.data_ptr() == tensor_of(array).data_ptr()
    assert torch.equal(tensor_of(array).float(), tensor.float())


@pytest.mark.parametrize("decomposes", [False, True])
def test_a_saved_program_is_the_one_of_the_module(tmp_path: Any, decomposes: bool) -> None:
    layer = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten()).eval()
    x = torch.randn(2, 3, 6, 5)
    exported = torch.export.export(layer, (x,))
    torch.export.save(exported.run_decompositions() if decomposes else exported, tmp_path / "net.pt2")
    program = gl.load(tmp_path / "net.pt2")
    (found,) = gl.evaluate([program.term], {**program.constants, "input": x.numpy()})
    assert np.allclose(found, layer(x).detach().numpy(), atol=1e-6)
    assert program.signature.outputs == ("output",)
    assert not program.constants["0.weight"].flags.owndata
    if not decomposes:
        assert any("in forward" in node for node in program.nodes.values())


class _Shifted(nn.Module):
    def forward(self, keys: Any, x: Any) -> Any:
        keys[:, 1:] = x
        keys.mul_(2)
        return keys.sum(1), keys.t()


@pytest.mark.parametrize("decomposes", [False, True])
def test_a_saved_program_gives_inputs_that_change_in_place(tmp_path: Any, decomposes: bool) -> None:
    keys, x = torch.randn(3, 4), torch.randn(3, 3)
    exported = torch.export.export(_Shifted(), (keys, x))
    torch.export.save(exported.run_decompositions() if decomposes else exported, tmp_path / "net.pt2")
    program = gl.load(tmp_path / "net.pt2")
    (found,) = gl.evaluate([program.term], {**program.constants, "keys": keys.numpy(), "x": x.numpy()})
    later = keys.clone()
    for own, want in zip(found, (*_Shifted()(later, x), later), strict=True):
        assert np.allclose(own, want.numpy(), atol=1e-6)
    assert program.signature.outputs == ("output_0", "output_1", "next.keys")


class _Sums(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: Any) -> Any:
        self.total.add_(x)
        return self.total + x


@pytest.mark.parametrize("decomposes", [False, True])
def test_a_saved_program_whose_buffer_changes_is_refused(tmp_path: Any, decomposes: bool) -> None:
    exported = torch.export.export(_Sums(), (torch.randn(3),))
    torch.export.save(exported.run_decompositions() if decomposes else exported, tmp_path / "net.pt2")
    with pytest.raises(BadInput, match="the module changes its buffer total in place"):
        gl.load(tmp_path / "net.pt2")


@pytest.mark.parametrize("module", [nn.LSTM(5, 6, 2, bidirectional=True), nn.GRU(5, 6), nn.LSTM(5, 6, proj_size=3)])
def test_a_saved_recurrent_layer_is_decomposed(tmp_path: Any, module: Any) -> None:
    x = torch.randn(4, 2, 5)
    torch.export.save(torch.export.export(module.eval(), (x,)), tmp_path / "net.pt2")
    program = gl.load(tmp_path / "net.pt2")
    (found,) = gl.evaluate([program.term], {**program.constants, "input": x.numpy()})
    with torch.no_grad():
        assert np.allclose(found[0], module(x)[0].numpy(), atol=1e-5)


@pytest.mark.parametrize("decomposes", [False, True])
def test_a_saved_program_with_open_sizes_is_the_one_of_the_module(tmp_path: Any, decomposes: bool) -> None:
    module, half = _Attention().eval(), torch.export.Dim("half", min=1, max=20)
    dims = {"x": {0: torch.export.Dim("batch", max=3), 1: 2 * half}, "scale": None}
    example = (torch.randn(2, 6, 16), torch.randn(1))
    assert {*gl.from_torch(module, example, dynamic_shapes=dims).ranges} == {"batch", "half"}
    exported = torch.export.export(module, example, dynamic_shapes=dims)
    torch.export.save(exported.run_decompositions() if decomposes else exported, tmp_path / "open.pt2")
    most = {str(symbol): int(own.upper) for symbol, own in exported.range_constraints.items() if symbol.is_symbol}
    for rows, length in ((2, 4), (3, 40)):
        x = torch.randn(rows, length, 16)
        sizes = {name: rows if greatest == 3 else length // 2 for name, greatest in most.items()}
        own = gl.load(tmp_path / "open.pt2", dims=sizes)
        (found,) = gl.evaluate([own.term], {**own.constants, "x": x.numpy(), "scale": example[1].numpy()})
        for a, b in zip(found, module(x, example[1]), strict=True):
            assert np.allclose(a, b.detach().numpy(), atol=1e-5)


def test_a_saved_program_with_state_is_refused(tmp_path: Any) -> None:
    torch.export.save(torch.export.export(_Counter(), (torch.randn(1),)), tmp_path / "state.pt2")
    with pytest.raises(BadInput, match=r"state.pt2: the module changes its buffer calls in place|copy_"):
        gl.load(tmp_path / "state.pt2")
