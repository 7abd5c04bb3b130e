"""Builds training steps from command-line options: a loss by name, an optimizer as `adam:0.001,beta1=0.8`."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

from glenside.gradients.losses import LOSSES, loss_named
from glenside.gradients.optimizers import OPTIMIZERS, Optimizer
from glenside.gradients.training import TrainingStep, require_one_result, training_step
from glenside.ir.errors import BadInput
from glenside.ir.names import shortened, suggestion
from glenside.ir.operators import compute_of
from glenside.ir.program import Program
from glenside.ir.term import Term

OPTIMIZER = "sgd"
"""The default optimizer."""


def step_from_options(
    program: Program, loss: str | None = None, optimizer: str | None = None
) -> tuple[TrainingStep, str]:
    """Returns the training step of a network, and a sentence about its loss for the user.

      loss       its name; None selects the loss that includes the network's last step, softmax or sigmoid, or else the
                 squared error
      optimizer  in the format of `read_optimizer`

    A last step of the network that the loss includes is removed: the loss reads its operand. Raises BadInput,
    TypeMismatch.
    """
    require_one_result(program)
    how, given = read_optimizer(optimizer or OPTIMIZER), None if loss is None else loss_named(loss)
    ends = {name: before for name in _ENDS if (before := before_end(program.term, name)) is not None}
    record = given or next((r for r in LOSSES.values() if r.of_output in ends), LOSSES["squared-error"])
    said = f"the loss is {record.name}"
    if record.of_output in ends:
        program = replace(program, term=ends[record.of_output])
        said += f", of the operand of {record.of_output}"
    return training_step(program, record, how), f"{said}; weights are updated by {optimizer or OPTIMIZER}"


_ENDS = {record.of_output: None for record in LOSSES.values() if record.of_output}


def before_end(term: Term, name: str) -> Term | None:
    """Returns the operand of the network's last step if it is the compute type of that name, else None.

    Items must have one axis, which is then the last; elements may be moved afterwards if all of them are kept.
    """
    count = term.access.size
    while term.operator.moves and len(term.children) == 1:
        (term,) = term.children
    if term.operator.name != "compute" or compute_of(term)[0].name != name:
        return None
    (before,) = term.children
    whole = before.access.size == count and (name != "softmax" or len(before.access.item) == 1)
    return before if whole else None


def read_optimizer(text: str) -> Optimizer:
    """Parses an optimizer, NAME[:RATE][,OPTION=VALUE ..], such as `sgd`, `adam:0.001` or
    `momentum:rate=0.1,nesterov=yes`.

    Raises BadInput.
    """
    name, *options = re.split("[:,]", text)
    if name not in OPTIMIZERS:
        have, hint = ", ".join(OPTIMIZERS), suggestion(name, OPTIMIZERS)
        raise BadInput(f"an optimizer is one of {have}, got {shortened(name)}{hint}")
    made = OPTIMIZERS[name]
    known = {field.name: field.default for field in fields(made)}  # type: ignore[arg-type]
    given: dict[str, Any] = {}
    if options and "=" not in options[0]:
        given["rate"] = options.pop(0)
    for option, equals, value in (part.partition("=") for part in options):
        if option not in known or not equals:
            wanted = ", ".join(f"{key}={default}" for key, default in known.items())
            raise BadInput(f"options of {name} have the form {wanted}, got {shortened(option + equals + value)}")
        given[option] = _truth(option, value) if isinstance(known[option], bool) else value
    return made(**given)


def _truth(option: str, value: str) -> bool:
    if value not in _TRUTHS:
        raise BadInput(f"{option} is yes or no, got {shortened(value)}")
    return _TRUTHS[value]


_TRUTHS = {"yes": True, "no": False, "True": True, "False": False}
