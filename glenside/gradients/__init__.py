"""Builds gradients of programs as programs, from one derivative in each operator's record, and training steps.

step = gl.gradient(program, wrt=["w", "b"])     # a program whose result is the tuple of both step =
gl.training_step(network, "softmax-cross-entropy", gl.Adam("0.001"))
"""

from glenside.gradients.optimizers import SGD, Adam, AdamW, Momentum
from glenside.gradients.programs import gradient, jvp, value_and_gradient
from glenside.gradients.training import TrainingStep, training_step

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Momentum",
    "TrainingStep",
    "gradient",
    "jvp",
    "training_step",
    "value_and_gradient",
]
