"""Trains networks on arrays of examples: `gl.train(network, {"x": images, "y": digits})`.

A training step is one program, `gl.training_step`. This package handles the examples, the loop over them, and the
checkpoints of a run.
"""

from glenside.training.loop import Epoch, Trained, train

__all__ = ["Epoch", "Trained", "train"]
