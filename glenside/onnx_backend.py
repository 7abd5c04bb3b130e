"""The old name of `glenside.importers.onnx.backend`: it goes with the next version."""

import warnings

from glenside.importers.onnx.backend import *  # noqa: F403

warnings.warn("glenside.onnx_backend is now glenside.importers.onnx.backend", DeprecationWarning, stacklevel=2)
