"""Networks trained on arrays of examples: `gl.train(network, {"x": images, "y": digits})`.

The step is one program, `gl.training_step`; here are the examples that it is given, the loop around it, and what is
kept of a run that ends early.
"""

from glenside.training.loop import Epoch, Trained, train

__all__ = ["Epoch", "Trained", "train"]
