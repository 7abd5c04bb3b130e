"""Gradients of programs as programs of the language, from one derivative in each operator's record.

step = gl.gradient(program, wrt=["w", "b"])     # a program whose result is the tuple of both
"""

from glenside.gradients.programs import gradient, jvp, value_and_gradient

__all__ = ["gradient", "jvp", "value_and_gradient"]
