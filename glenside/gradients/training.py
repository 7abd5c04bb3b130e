"""Builds training steps: forward pass, loss, backward pass and update as one program from state to next state."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from glenside.builder.pointwise import add, cast, filled
from glenside.gradients.batch_norms import batch_statistics
from glenside.gradients.losses import Loss, loss_named
from glenside.gradients.optimizers import Amount, Optimizer, amount
from glenside.gradients.programs import require_new, value_and_gradient
from glenside.ir.dtypes import FLOATS
from glenside.ir.errors import BadInput
from glenside.ir.names import spelled_name, suggestion
from glenside.ir.operand import Array
from glenside.ir.program import Program, Signature, as_program
from glenside.ir.term import Term, build, rebuild_all
from glenside.ir.types import Dims, Tensor, TupleType

NEXT = ".next"
"""The suffix of a state tensor's name among the results."""


@dataclass(frozen=True)
class TrainingStep:
    """One step as a program, and the state before the first.

    program  inputs: those of the network, the labels, the state, and the learning rate if it is an input; results:
             the loss, the network's output if requested, then the next state, tensor NAME as NAME.next
    state    the tensors of the state in that order: weights, the optimizer's state of each (WEIGHT.velocity ..), the
             number of steps if it is counted, and running averages of batch norms if they change
    weights  the names of trained weights
    labels   the name of the input with targets
    initial  the state before the first step: the network's values of weights if it has them, all else 0
    """

    program: Program
    state: tuple[Tensor, ...]
    weights: tuple[str, ...]
    labels: str
    initial: Mapping[str, Array]

    def next(self, results: Sequence[Array]) -> tuple[Array, dict[str, Array]]:
        """Returns the loss and the next state from the program's results."""
        state = results[-len(self.state) :]
        return results[0], {tensor.name: array for tensor, array in zip(self.state, state, strict=True)}


def training_step(
    program: Program,
    loss: str | Loss,
    optimizer: Optimizer,
    *,
    weights: Sequence[str] | None = None,
    labels: str = "labels",
    output: bool = False,
    batch_momentum: Amount | None = None,
) -> TrainingStep:
    """Returns one step of training a network of one result, as one program: state in, state out.

      loss       a name of `glenside.gradients.losses`, such as softmax-cross-entropy, or a record like those
      optimizer  gl.SGD(rate), gl.Momentum(..), gl.Adam(..) or gl.AdamW(..); a rate of None is an input, learning-rate
      weights    names of constants of a float dtype; by default all of them, or for an ONNX file all initializers that
                 have axes, if there are any. Name them if some are not weights
      labels     the name of the new input with targets
      output     True: the network's output, before the update, is a result too, after the loss
      batch_momentum
                 None uses the stored statistics of batch norms. A number from 0 to below 1 uses those of the batch, and
                 makes the stored ones running averages in the state: the next one is
                 momentum * average + (1 - momentum) * statistic, with variances divided by the size of the batch

    In the step weights are inputs, so computations on them are repeated in every step. Raises BadInput, TypeMismatch.
    """
    require_one_result(as_program(program, "trained"))
    record = loss if isinstance(loss, Loss) else loss_named(loss)
    if isinstance(optimizer, str | type):
        raise BadInput(f"training requires an optimizer such as gl.Adam('0.001'), got {optimizer!r}")
    own = program.inputs.values()
    known, moved = program, _NONE
    if batch_momentum is not None:
        program, moved = batch_statistics(known, amount("the momentum of batch norms", batch_momentum, below=1))
    averages = [known.constants_declared[name] for name in moved]
    trained = _trained(program, weights, known.signature.fixed)
    kind = record.target(program.term.access)
    target = Tensor(labels, kind.dims, kind.dtype)
    state = _state(trained, optimizer)
    rate = Tensor("learning-rate", Dims(), "float32")
    inputs = [target, *state[len(trained) :], *([rate] if optimizer.rate is None else [])]
    require_new(program, inputs)
    whole = record.of(build("access", program.term, 0), build("access-tensor", target))
    measured = replace(program, term=whole, signature=Signature((*own, target), ("loss",)))
    both = value_and_gradient(measured, [t.name for t in trained])
    value, *gradients = both.term.children
    updates = [*_updates(optimizer, trained, gradients, rate), *moved.values()]
    results = [value, *([program.term] if output else []), *updates]
    state += averages
    outputs = ("loss", *(["output"] if output else []), *(f"{tensor.name}{NEXT}" for tensor in state))
    stepped = replace(both, term=build("construct-tuple", *results), name=f"{program.name}-training-step")
    signature = Signature((*own, *trained, *inputs, *averages), outputs)
    names = tuple(t.name for t in trained)
    step = opened(replace(stepped, signature=Signature()), {*names, *moved}, signature)
    values = {n: known.constants[n] for n in (*names, *moved) if n in known.constants}
    zeros = {t.name: np.zeros(t.dims, t.dtype) for t in inputs[1:] if t is not rate}
    initial = {**values, **zeros}
    return TrainingStep(step, tuple(replace(t, constant=False) for t in state), names, labels, initial)


_NONE: Mapping[str, Term] = {}


def require_one_result(network: Program) -> None:
    """Raises BadInput for a network of several results."""
    if isinstance(network.term.type, TupleType):
        raise BadInput(f"training requires a network of one result, got {network.term.type}")


def state_of(program: Program) -> tuple[Tensor, ...]:
    """Returns the inputs of a program whose next values are among its results: weights, and an optimizer's state."""
    outputs = set(program.signature.outputs)
    return tuple(t for t in program.signature.inputs if f"{t.name}{NEXT}" in outputs)


def _trained(program: Program, weights: Sequence[str] | None, fixed: Container[str]) -> list[Tensor]:
    """Returns the constants that are trained. Raises BadInput."""
    known = {name: t for name, t in program.constants_declared.items() if t.dtype in FLOATS}
    if weights is None:
        names = [name for name in known if name not in fixed] or list(known)
    else:
        names = [weights] if isinstance(weights, str) else list(weights)
    if not names:
        raise BadInput(f"training requires weights, constants of a float dtype ({', '.join(FLOATS)}), got none")
    for name in names:
        if name not in known:
            hint = suggestion(name, known)
            raise BadInput(f"training requires constants of a float dtype, got {spelled_name(name)}{hint}")
    return [known[name] for name in dict.fromkeys(names)]


def _state(trained: Sequence[Tensor], optimizer: Optimizer) -> list[Tensor]:
    kept = [Tensor(f"{t.name}.{part}", t.dims, t.dtype) for t in trained for part in optimizer.kept]
    return [*trained, *kept, *([Tensor("steps", Dims(), "int64")] if optimizer.counts else [])]


def _updates(optimizer: Optimizer, trained: Sequence[Tensor], gradients: Sequence[Term], rate: Tensor) -> list[Term]:
    """Returns the next state, in the order of the state."""
    count = build("access-tensor", Tensor("steps", Dims(), "int64"))
    step = add(count, filled(count, 1))
    weights, kept = list[Term](), list[Term]()
    for tensor, gradient in zip(trained, gradients, strict=True):
        parts = {
            part: build("access-tensor", Tensor(f"{tensor.name}.{part}", tensor.dims, tensor.dtype))
            for part in optimizer.kept
        }
        given = build("access-tensor", rate) if optimizer.rate is None else None
        amount = build("full", (), str(optimizer.rate), tensor.dtype) if given is None else cast(given, tensor.dtype)
        leaf = build("access-tensor", tensor)
        weight, after = optimizer.update(leaf, gradient, parts, amount, cast(step, tensor.dtype))
        weights.append(weight)
        kept += [after[part] for part in optimizer.kept]
    return [*weights, *kept, *([step] if optimizer.counts else [])]


def opened(program: Program, weights: Container[str], signature: Signature) -> Program:
    """Returns the program with these constants as inputs."""

    def open_leaf(term: Term, _: tuple[Term, ...]) -> Term | None:
        tensor = term.attributes[0] if term.attributes else None
        if not isinstance(tensor, Tensor) or tensor.name not in weights:
            return None
        return build("access-tensor", replace(tensor, constant=False))

    roots = rebuild_all([*program.roots, *program.names.values()], open_leaf)
    inputs = tuple(replace(t, constant=False) if t.name in weights else t for t in signature.inputs)
    constants = {
        name: program.constants[name]
        for name in program.constants_declared
        if name not in weights and name in program.constants
    }
    signature = replace(signature, inputs=inputs)
    return program.with_roots(roots, constants=constants, origins={}, nodes={}, signature=signature)
