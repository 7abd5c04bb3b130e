"""Defines optimizers: the update of a weight and of its state from its gradient, as terms.

Numbers are exact texts, or Python numbers, which are converted by their printed form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

from glenside.builder.pointwise import combine
from glenside.gradients.algebra import add, broadcast, compute, divide, filled, multiply, reshape, subtract
from glenside.ir.errors import BadInput
from glenside.ir.rational import exact, one_minus
from glenside.ir.term import Term

Amount = float | str


class Optimizer(Protocol):
    """The state of each weight, by name; whether steps are counted; and one update.

    `update` takes a weight, its gradient, its state, the learning rate ()() and the number of this step from 1, ()(),
    both in the weight's dtype; it returns the new weight and its new state.
    """

    @property
    def rate(self) -> Amount | None: ...

    @property
    def kept(self) -> Sequence[str]: ...

    @property
    def counts(self) -> bool: ...

    def update(
        self, weight: Term, gradient: Term, kept: Mapping[str, Term], rate: Term, step: Term
    ) -> tuple[Term, Mapping[str, Term]]: ...


def amount(what: str, value: Amount, least: int | None = 0, below: int | None = None) -> str:
    """Returns the text of an exact number within bounds. Raises BadInput."""
    text = str(value)
    number = exact(text)
    fits = number is not None and (least is None or number >= least) and (below is None or number < below)
    if not fits:
        bounds = f"of at least {least}" + (f" and below {below}" if below is not None else "")
        raise BadInput(f"{what} requires a number {bounds}, got {text!r:.40}")
    return text


def _repeated(one: Term, x: Term) -> Term:
    """Repeats one number to the dims of x."""
    dims = x.access.dims
    return broadcast(reshape(one, [1 for _ in dims]), dims)


def _scaled(x: Term, factor: Term | str) -> Term:
    """Multiplies x by one number."""
    return multiply(x, filled(x, factor) if isinstance(factor, str) else _repeated(factor, x))


Declared = TypeVar("Declared", bound=type)

OPTIMIZERS: dict[str, type[Optimizer]] = {}
"""Optimizers by name for commands: the class name in lower case."""


def _named(optimizer: Declared) -> Declared:
    """Declares an optimizer under its name; its docstring is its documentation."""
    OPTIMIZERS[optimizer.__name__.lower()] = optimizer
    return optimizer


@_named
@dataclass(frozen=True)
class SGD:
    """w - rate * g. A rate of None is an input of the step, learning-rate. Raises BadInput."""

    rate: Amount | None = "0.01"
    kept: ClassVar[Sequence[str]] = ()
    counts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.rate is not None:
            amount("a learning rate", self.rate)

    def update(
        self, weight: Term, gradient: Term, kept: Mapping[str, Term], rate: Term, step: Term
    ) -> tuple[Term, Mapping[str, Term]]:
        """Returns the new weight."""
        return subtract(weight, _scaled(gradient, rate)), {}


@_named
@dataclass(frozen=True)
class Momentum:
    """v' = momentum * v + g; w - rate * v', or with `nesterov` w - rate * (g + momentum * v'). Raises BadInput."""

    rate: Amount | None = "0.01"
    momentum: Amount = "0.9"
    nesterov: bool = False
    kept: ClassVar[Sequence[str]] = ("velocity",)
    counts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.rate is not None:
            amount("a learning rate", self.rate)
        amount("momentum", self.momentum)

    def update(
        self, weight: Term, gradient: Term, kept: Mapping[str, Term], rate: Term, step: Term
    ) -> tuple[Term, Mapping[str, Term]]:
        """Returns the new weight and velocity."""
        velocity = add(_scaled(kept["velocity"], str(self.momentum)), gradient)
        along = add(gradient, _scaled(velocity, str(self.momentum))) if self.nesterov else velocity
        return subtract(weight, _scaled(along, rate)), {"velocity": velocity}


@_named
@dataclass(frozen=True)
class Adam:
    """w - rate * m' / (sqrt(v') + epsilon), with running means of g and g^2, corrected for starting at 0.

    Kingma and Ba, "Adam: a method for stochastic optimization" (2015), algorithm 1. Raises BadInput.
    """

    rate: Amount | None = "0.001"
    beta1: Amount = "0.9"
    beta2: Amount = "0.999"
    epsilon: Amount = "1e-8"
    kept: ClassVar[Sequence[str]] = ("first-moment", "second-moment")
    counts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.rate is not None:
            amount("a learning rate", self.rate)
        amount("beta1", self.beta1, below=1)
        amount("beta2", self.beta2, below=1)
        amount("epsilon", self.epsilon)

    def update(
        self, weight: Term, gradient: Term, kept: Mapping[str, Term], rate: Term, step: Term
    ) -> tuple[Term, Mapping[str, Term]]:
        """Returns the new weight and moments."""
        first, mean = self._moment(kept["first-moment"], gradient, str(self.beta1), step)
        second, square = self._moment(kept["second-moment"], multiply(gradient, gradient), str(self.beta2), step)
        deviation = add(compute("sqrt", square), filled(square, str(self.epsilon)))
        moved = subtract(weight, _scaled(divide(mean, deviation), rate))
        return moved, {"first-moment": first, "second-moment": second}

    def _moment(self, before: Term, now: Term, beta: str, step: Term) -> tuple[Term, Term]:
        """Returns the running mean, and its bias-corrected value: divided by 1 - beta^step."""
        moment = add(_scaled(before, beta), _scaled(now, one_minus(beta)))
        corrected = subtract(filled(step, 1), combine("pow", filled(step, beta), step))
        return moment, divide(moment, _repeated(corrected, moment))


@_named
@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay: the weight is first reduced by rate * decay of itself.

    Loshchilov and Hutter, "Decoupled weight decay regularization" (2019). Raises BadInput.
    """

    decay: Amount = "0.01"

    def __post_init__(self) -> None:
        super().__post_init__()
        amount("decay", self.decay)

    def update(
        self, weight: Term, gradient: Term, kept: Mapping[str, Term], rate: Term, step: Term
    ) -> tuple[Term, Mapping[str, Term]]:
        """Returns the new weight and moments."""
        decayed = subtract(weight, _scaled(weight, _scaled(rate, str(self.decay))))
        return super().update(decayed, gradient, kept, rate, step)
