"""Tests training on examples: it learns, resumes exactly after an interruption, and refuses wrong input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glenside as gl
from glenside.gradients.losses import LOSSES
from glenside.gradients.step_options import read_optimizer
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.training.checkpoint import read
from glenside.training.examples import held_out, shuffled
from glenside.training.loop import Epoch


def _network(batch: int = 8, classes: int = 3, ends: str = "") -> gl.Program:
    """x (batch 2) through 12 hidden units to classes."""
    b = gl.Builder("points")
    draw = np.random.default_rng(0).standard_normal
    dims = {"w1": (12, 2), "b1": (12,), "w2": (classes, 12), "b2": (classes,)}
    w1, b1, w2, b2 = (b.constant(n, d, value=draw(d).astype("float32")) for n, d in dims.items())
    y = b.linear(b.relu(b.linear(b.input("x", (batch, 2)), w1, b1, name="first")), w2, b2, name="last")
    return b.finish(b.softmax(y) if ends == "softmax" else b.sigmoid(y) if ends == "sigmoid" else y)


def _points(count: int = 100) -> dict[str, Array]:
    """Points of a square, and in which third of the turn they lie."""
    x = np.random.default_rng(1).uniform(-1, 1, (count, 2))
    return {"x": x, "y": np.floor((np.arctan2(x[:, 1], x[:, 0]) / (2 * np.pi) + 0.5) * 2.999).astype("int32")}


def _train(program: gl.Program, data: dict[str, Array], **how: Any) -> gl.training.Trained:
    return gl.train(program, data, **{"machine": "interpreter", "optimizer": "adam:0.02", **how})


def test_points_are_learnt_and_the_program_has_the_weights() -> None:
    told: list[Epoch] = []
    trained = _train(_network(), _points(200), epochs=25, held_out=0.2, on_epoch=told.append)
    assert told == trained.epochs
    assert [epoch.number for epoch in told] == [*range(1, 26)]
    last = told[-1]
    assert last.accuracy is not None
    assert last.accuracy > 0.9
    x, y = _points(200)["x"][:8].astype("float32"), _points(200)["y"][:8]
    (logits,) = gl.evaluate([trained.program.term], {**trained.program.constants, "x": x})
    assert np.mean(logits.argmax(1) == y) > 0.8
    assert not np.array_equal(trained.program.constants["w1"], _network().constants["w1"])


def test_what_is_said_of_examples_held_out_is_what_the_network_gives_for_them() -> None:
    """37 examples in batches of 8: the last one is not whole, and its examples count once."""
    data = _points(100)
    trained = _train(_network(), data, epochs=2, held_out=0.37, seed=3)
    _, kept = held_out(100, 0.37, 3)
    assert len(kept) == 37
    x = data["x"][kept].astype("float32")
    c = trained.program.constants
    logits = np.maximum(x @ c["w1"].T + c["b1"], 0) @ c["w2"].T + c["b2"]
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    right = data["y"][kept]
    assert trained.epochs[-1].held_out_accuracy == pytest.approx(np.mean(logits.argmax(1) == right))
    expected = -np.mean(np.log(shares[np.arange(37), right]))
    assert trained.epochs[-1].held_out_loss == pytest.approx(expected, rel=1e-4)


def test_native_code_trains_as_the_interpreter_does() -> None:
    one, other = (_train(_network(), _points(), epochs=2, held_out=0.1, machine=m) for m in ("native", "interpreter"))
    assert one.on.startswith("native code")
    for name, array in one.program.constants.items():
        np.testing.assert_allclose(array, other.program.constants[name], rtol=1e-3, atol=1e-5)
    assert one.epochs[-1].loss == pytest.approx(other.epochs[-1].loss, rel=1e-4)


def test_where_nothing_can_be_compiled_the_interpreter_trains_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise BadInput("there is no C compiler: install one")

    monkeypatch.setattr("glenside.driver.compile", none)
    trained = _train(_network(), _points(), epochs=1, machine="native")
    assert trained.on == "the interpreter, as there is no C compiler: install one"
    with pytest.raises(BadInput, match="no C compiler"):
        _train(_network(), _points(), epochs=1, machine="generic")


class _Stop:
    """Ctrl-C after so many steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self, _: object) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


@pytest.mark.parametrize("steps", [1, 7, 11, 25])
def test_a_run_that_was_ended_goes_on_as_if_it_had_not_been(tmp_path: Path, steps: int) -> None:
    """An epoch has 11 steps; the run is ended at its first step, within the first epoch, at its end, and within the
    third.
    """
    path = tmp_path / "run.npz"
    whole = _train(_network(), _points(), epochs=3, held_out=0.1)
    part = _train(_network(), _points(), epochs=3, held_out=0.1, checkpoint=path, listener=_Stop(steps))
    assert part.interrupted
    assert len(part.epochs) == (steps - 1) // 11
    rest = _train(_network(), _points(), epochs=3, held_out=0.1, checkpoint=path, resume=True)
    assert not rest.interrupted
    for name, array in whole.program.constants.items():
        np.testing.assert_array_equal(rest.program.constants[name], array)
    for one, other in zip(rest.epochs, whole.epochs, strict=True):
        assert (one.loss, one.accuracy, one.held_out_loss) == (other.loss, other.accuracy, other.held_out_loss)


def test_more_epochs_go_on_where_fewer_ended(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    _train(_network(), _points(), epochs=1, checkpoint=path)
    rest = _train(_network(), _points(), epochs=2, checkpoint=path, resume=True)
    assert [epoch.number for epoch in rest.epochs] == [1, 2]
    whole = _train(_network(), _points(), epochs=2)
    np.testing.assert_array_equal(rest.program.constants["w1"], whole.program.constants["w1"])


def test_every_epoch_has_each_example_at_most_once_in_an_order_of_its_own() -> None:
    places, apart = held_out(100, 0.25, 7)
    assert sorted([*places, *apart]) == [*range(100)]
    first, second = (shuffled(places, 7, epoch) for epoch in (1, 2))
    assert sorted(first) == sorted(second) == [*places]
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(first, shuffled(places, 7, 1))


@pytest.mark.parametrize(
    ("ends", "loss"), [("softmax", "softmax-cross-entropy-one-hot"), ("sigmoid", "binary-cross-entropy")]
)
def test_what_a_loss_begins_with_is_left_out_of_training_and_not_of_the_network(ends: str, loss: str) -> None:
    data = _points()
    data["y"] = np.eye(3)[data["y"]]
    ended, plain = (_train(_network(ends=e), data, loss=loss, epochs=1) for e in (ends, ""))
    assert any("trained up to its" in note for note in ended.notes)
    assert not any("trained up to its" in note for note in plain.notes)
    assert ended.epochs[0].loss == plain.epochs[0].loss
    assert ended.program.term is _network(ends=ends).term
    np.testing.assert_array_equal(ended.program.constants["w2"], plain.program.constants["w2"])


@pytest.mark.parametrize("loss", [name for name in LOSSES if LOSSES[name].right is None])
def test_numbers_are_learnt_without_a_share_that_is_right(loss: str) -> None:
    data = {"x": _points()["x"], "labels": _points()["x"] @ np.array([[1.0], [0.5]])}
    trained = _train(_network(classes=1), data, loss=loss, epochs=8, held_out=0.1)
    assert trained.epochs[-1].accuracy is None
    assert trained.epochs[-1].loss < 0.5 * trained.epochs[0].loss
    assert len(trained.plot().axes) == 1


def test_only_the_weights_that_are_named_are_trained() -> None:
    trained = _train(_network(), _points(), epochs=1, weights=["w2"])
    changed = [n for n, array in trained.program.constants.items() if (array != _network().constants[n]).any()]
    assert changed == ["w2"]


def test_batch_norms_are_trained_by_the_batch_and_used_by_their_averages() -> None:
    b = gl.Builder("norms")
    x = b.input("x", (20, 2))
    y = b.linear(x, b.constant("w1", (12, 2)), name="first")
    y = b.relu(b.batch_norm(y, *(b.constant(name, (12,)) for name in ("gamma", "beta", "mean", "var"))))
    program = b.finish(b.linear(y, b.constant("w2", (3, 12)), name="last"))
    trained = _train(program, _points(200), epochs=30, held_out=0.2)
    c = trained.program.constants
    hidden = _points(200)["x"][held_out(200, 0.2, 0)[0]] @ c["w1"].T
    np.testing.assert_allclose(c["mean"], hidden.mean(0), atol=0.1)
    np.testing.assert_allclose(c["var"], hidden.var(0), rtol=0.3)
    assert (trained.epochs[-1].held_out_accuracy or 0) > 0.8
    still = _train(program, _points(200), epochs=1, batch_momentum=None, weights=["w1", "w2"])
    np.testing.assert_array_equal(still.program.constants["mean"], program.seeded_constants(0).constants["mean"])


def test_numbers_that_are_no_longer_finite_are_found_with_their_layer(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    wild = {"optimizer": "sgd:1e30", "checkpoint": path, "epochs": 1}
    where = r"step [23] of epoch 1: NaN first appears (in|after) (first|last), where compute .*run\.npz is the state"
    with pytest.raises(BadInput, match=where):
        _train(_network(), _points(), **wild)
    kept = np.load(path)
    assert all(np.isfinite(kept[name]).all() for name in kept.files if name != "epochs")
    b = gl.Builder("root")
    w = b.constant("w", (1, 2), value=np.array([[1.0, -1.0]], "float32"))
    rooted = b.finish(b.compute("sqrt", b.linear(b.input("x", (4, 2)), w, name="line")))
    with pytest.raises(BadInput, match=r"step 1 .*NaN first appears after line, where compute sqrt makes \(\)\(4 1\)"):
        _train(rooted, {"x": np.ones((4, 2)) * [1, 2], "y": np.ones((4, 1))}, loss="squared-error")


def _with(name: str, change: Callable[[Array], Array]) -> dict[str, Array]:
    data = _points()
    return {**data, name: change(data[name])}


def _put(place: Any, value: float) -> Callable[[Array], Array]:
    def change(array: Array) -> Array:
        array = array.copy()
        array[place] = value
        return array

    return change


DATA: list[tuple[dict[str, Array], str]] = [
    (_with("y", _put(5, -1)), r"y of the data requires labels from 0 to 2, got -1 at \[5\]$"),
    (_with("y", _put([4, 9], 3)), r"labels from 0 to 2, got 3 at \[4\], and 1 more"),
    (_with("y", lambda y: y + 0.5), "y of the data requires whole numbers of int64, got "),
    (_with("y", lambda y: y[:9]), "the same number of examples, got 100 of x, 9 of labels"),
    (_with("x", _put((7, 1), np.nan)), r"x of the data requires finite numbers of float32, got nan at \[7, 1\]"),
    (_with("x", _put((7, 1), 1e300)), r"finite numbers of float32, got 1e\+300 at \[7, 1\]"),
    (_with("x", lambda x: x.reshape(100, 1, 2)), r"requires shape \(examples 2\), got \(100 1 2\); as \(100 2\)"),
    (_with("x", lambda x: x.astype(str)), "x of the data requires float32, got <U32"),
    ({"image": _points()["x"], "y": _points()["y"]}, "the data has no array x for the input x; it has image, y"),
    ({"x": _points()["x"]}, "the data has no array labels for the labels; it has x"),
    (_points(5), "a batch of 8 requires at least that many examples, got 5"),
]


@pytest.mark.parametrize(("data", "message"), DATA)
def test_data_that_do_not_fit_are_a_sentence(data: dict[str, Array], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        _train(_network(), data, epochs=1)


@pytest.mark.parametrize(
    ("dims", "hint"),
    [
        ((9, 7, 6, 3), r"with its axes in the order \(0 3 1 2\) it would fit"),  # channels last
        ((9, 126), r"as \(9 3 7 6\) it would fit"),
        ((9, 3, 6, 7), r"with its axes in the order \(0 1 3 2\) it would fit"),
        ((9, 3, 7, 7), r"got \(9 3 7 7\)$"),
    ],
)
def test_of_examples_that_do_not_fit_it_is_said_how_they_would(dims: tuple[int, ...], hint: str) -> None:
    b = gl.Builder("images")
    x = b.input("x", (2, 3, 7, 6))
    program = b.finish(b.linear(b.reshape(x, (2, 126)), b.constant("w", (3, 126))))
    with pytest.raises(BadInput, match=hint):
        _train(program, {"x": np.zeros(dims), "y": np.zeros(9, int)}, epochs=1)


def _matrix(classes: bool) -> gl.Program:
    b = gl.Builder("whole")
    x, w = b.input("x", (8, 2)), b.constant("w", (2, 2), "float32" if classes else "int32")
    return b.finish(b.reduce_axes("reduce-sum", b.linear(x, w), [0]) if classes else b.relu(x))


ASKED: list[tuple[Callable[[], object], str]] = [
    (
        lambda: _train(_network(), _points(), optimizer="adm:1"),
        "one of sgd, momentum, adam, adamw, got adm; did you mean",
    ),
    (lambda: read_optimizer("adam:0.1,beta3=1"), "options of adam have the form rate=0.001, beta1=.*, got beta3=1"),
    (lambda: read_optimizer("momentum:0.1,nesterov=on"), "nesterov is yes or no, got on"),
    (lambda: _train(_network(), _points(), optimizer=gl.SGD(None)), "an optimizer with a learning rate"),
    (lambda: _train(_network(), _points(), held_out=1), "from 0 to below 1, got 1"),
    (lambda: _train(_network(), _points(), held_out=0.99), "a batch of 8 requires .*, got 1, 99 of 100 are held out"),
    (lambda: _train(_network(), _points(), epochs=-1), "epochs"),
    (lambda: _train(_network(), _points(), resume=True), "resume requires a checkpoint"),
    (lambda: _train(_network(), _points(), keys={"z": "x"}), "the network has no input z for examples"),
    (
        lambda: _train(_matrix(True), _points()),
        r"a first axis of the same number of examples, got x \(8 2\), labels \(\)",
    ),
    (lambda: _train(_matrix(False), {**_points(), "y": np.zeros(100)}), "constants of a float dtype"),
]


@pytest.mark.parametrize(("ask", "message"), ASKED)
def test_what_cannot_be_asked_is_a_sentence(ask: Callable[[], object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        ask()


def test_optimizers_have_names() -> None:
    assert read_optimizer("adam") == gl.Adam()
    assert read_optimizer("adamw:0.01,decay=0.1") == gl.AdamW("0.01", decay="0.1")
    assert read_optimizer("momentum:1e-3,nesterov=yes") == gl.Momentum("1e-3", nesterov=True)


def test_checkpoints_of_something_else_are_a_sentence_and_stay(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    _train(_network(), _points(), epochs=1, checkpoint=path)
    before = path.read_bytes()
    others: list[tuple[dict[str, Any], str]] = [
        ({"optimizer": "adam:0.1"}, "another network, loss, optimizer or batch"),
        ({"loss": "squared-error", "data": {**_points(), "y": np.zeros((100, 3))}}, "another network, loss"),
        ({"network": _network(10)}, "another network, loss, optimizer or batch"),
        ({"data": _points(101)}, "another data set"),
        ({"seed": 1}, "another seed"),
        ({"held_out": 0.1}, "another share that is held out"),
        ({"resume": False}, "exists: continue it with resume, or name another file"),
    ]
    for how, message in others:
        asked = {"network": _network(), "data": _points(), "epochs": 1, "checkpoint": path, "resume": True, **how}
        with pytest.raises(BadInput, match=message):
            _train(asked.pop("network"), asked.pop("data"), **asked)
    assert path.read_bytes() == before


@pytest.mark.slow
def test_checkpoints_that_are_damaged_are_a_sentence(tmp_path: Path) -> None:
    path, cut, other = (tmp_path / name for name in ("run.npz", "cut.npz", "other.npz"))
    _train(_network(), _points(), epochs=1, checkpoint=path)
    content = path.read_bytes()
    for length in (0, 10, len(content) // 2, len(content) - 30):
        cut.write_bytes(content[:length])
        with pytest.raises(BadInput, match=r"it is not a \.npz file, or it is damaged"):
            _train(_network(), _points(), epochs=2, checkpoint=cut, resume=True)
    arrays = dict(np.load(path))
    np.savez(other, **{n: a for n, a in arrays.items() if n != "about"})
    with pytest.raises(BadInput, match="not a checkpoint of a training"):
        read(other, {}, {})
    for lacking in ("state.w1", "now", "epochs"):
        np.savez(other, **{n: a for n, a in arrays.items() if n != lacking})
        with pytest.raises(BadInput, match="not a complete checkpoint"):
            _train(_network(), _points(), epochs=2, checkpoint=other, resume=True)
