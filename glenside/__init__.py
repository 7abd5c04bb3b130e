"""Glenside: finds the equal program that uses a machine best, by equality saturation, and checks that it is equal.

    import glenside as gl
    result = gl.optimize(gl.models.mobilenet_v1(), gl.SystolicArray(64, 64))

Names are imported on first use (PEP 562), so that the command line starts fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.6.0.dev0"

_EXPORTS = {
    "Adam": "glenside.gradients",
    "AdamW": "glenside.gradients",
    "Builder": "glenside.builder",
    "CPU": "glenside.targets",
    "Cache": "glenside.cache",
    "CheckReport": "glenside.check",
    "ConvolutionUnit": "glenside.targets",
    "Event": "glenside.report.progress",
    "Example": "glenside.egraph.rule",
    "GlensideError": "glenside.ir.errors",
    "Limits": "glenside.egraph.saturation",
    "MPC": "glenside.targets",
    "Momentum": "glenside.gradients",
    "NPU": "glenside.targets",
    "Node": "glenside.targets.custom",
    "OpenProgram": "glenside.ir.open_program",
    "Program": "glenside.ir.program",
    "Result": "glenside.report.result",
    "Rule": "glenside.egraph.rule",
    "SGD": "glenside.gradients",
    "Snapshot": "glenside.egraph.snapshot",
    "SystolicArray": "glenside.targets",
    "Target": "glenside.targets.base",
    "check_gradient": "glenside.check",
    "check_onnxruntime": "glenside.check.onnxruntime",
    "check_rule": "glenside.fuzzing.soundness",
    "compile": "glenside.driver",
    "evaluate": "glenside.semantics.interpreter",
    "export_egglog": "glenside.driver",
    "export_jax": "glenside.exporters.jax",
    "export_onnx": "glenside.exporters.onnx",
    "facts": "glenside.rewrites.facts",
    "fold": "glenside.passes.constant_folding",
    "from_jax": "glenside.importers.jax",
    "from_stablehlo": "glenside.importers.stablehlo",
    "from_torch": "glenside.importers.torch",
    "fuzz": "glenside.fuzzing",
    "gradient": "glenside.gradients",
    "index_map": "glenside.ir.index_map",
    "jvp": "glenside.gradients",
    "load": "glenside.formats",
    "load_onnx": "glenside.importers.onnx",
    "models": "glenside.models",
    "npu_program": "glenside.driver",
    "op": "glenside.rewrites.operators",
    "open_program": "glenside.ir.open_program",
    "operator": "glenside.semantics.declare",
    "optimize": "glenside.driver",
    "parse": "glenside.ir.text",
    "parse_target": "glenside.targets",
    "primitives": "glenside.ir.primitives",
    "quantize_weights": "glenside.quantization.weights",
    "require": "glenside.ir.operator",
    "rewrite": "glenside.egraph.clause",
    "rule": "glenside.rewrites.declare",
    "save": "glenside.formats",
    "target": "glenside.targets.custom",
    "train": "glenside.training",
    "training_step": "glenside.gradients",
    "value_and_gradient": "glenside.gradients",
    "when": "glenside.egraph.clause",
}

_MODULES = {"facts", "index_map", "models", "op", "primitives"}
"""Exports that are modules."""

if TYPE_CHECKING:
    from glenside import models as models
    from glenside.builder import Builder as Builder
    from glenside.cache import Cache as Cache
    from glenside.check import CheckReport as CheckReport
    from glenside.check import check_gradient as check_gradient
    from glenside.check.onnxruntime import check_onnxruntime as check_onnxruntime
    from glenside.driver import compile as compile
    from glenside.driver import export_egglog as export_egglog
    from glenside.driver import npu_program as npu_program
    from glenside.driver import optimize as optimize
    from glenside.egraph.clause import rewrite as rewrite
    from glenside.egraph.clause import when as when
    from glenside.egraph.rule import Example as Example
    from glenside.egraph.rule import Rule as Rule
    from glenside.egraph.saturation import Limits as Limits
    from glenside.egraph.snapshot import Snapshot as Snapshot
    from glenside.exporters.jax import export_jax as export_jax
    from glenside.exporters.onnx import export_onnx as export_onnx
    from glenside.formats import load as load
    from glenside.formats import save as save
    from glenside.fuzzing import fuzz as fuzz
    from glenside.fuzzing.soundness import check_rule as check_rule
    from glenside.gradients import SGD as SGD
    from glenside.gradients import Adam as Adam
    from glenside.gradients import AdamW as AdamW
    from glenside.gradients import Momentum as Momentum
    from glenside.gradients import gradient as gradient
    from glenside.gradients import jvp as jvp
    from glenside.gradients import training_step as training_step
    from glenside.gradients import value_and_gradient as value_and_gradient
    from glenside.importers.jax import from_jax as from_jax
    from glenside.importers.onnx import load_onnx as load_onnx
    from glenside.importers.stablehlo import from_stablehlo as from_stablehlo
    from glenside.importers.torch import from_torch as from_torch
    from glenside.ir import index_map as index_map
    from glenside.ir import primitives as primitives
    from glenside.ir.errors import GlensideError as GlensideError
    from glenside.ir.open_program import OpenProgram as OpenProgram
    from glenside.ir.open_program import open_program as open_program
    from glenside.ir.operator import require as require
    from glenside.ir.program import Program as Program
    from glenside.ir.text import parse as parse
    from glenside.passes.constant_folding import fold as fold
    from glenside.quantization.weights import quantize_weights as quantize_weights
    from glenside.report.progress import Event as Event
    from glenside.report.result import Result as Result
    from glenside.rewrites import facts as facts
    from glenside.rewrites import operators as op
    from glenside.rewrites.declare import rule as rule
    from glenside.semantics.declare import operator as operator
    from glenside.semantics.interpreter import evaluate as evaluate
    from glenside.targets import CPU as CPU
    from glenside.targets import MPC as MPC
    from glenside.targets import NPU as NPU
    from glenside.targets import ConvolutionUnit as ConvolutionUnit
    from glenside.targets import SystolicArray as SystolicArray
    from glenside.targets import parse_target as parse_target
    from glenside.targets.base import Target as Target
    from glenside.targets.custom import Node as Node
    from glenside.targets.custom import target as target
    from glenside.training import train as train

__all__ = [
    "CPU",
    "MPC",
    "NPU",
    "SGD",
    "Adam",
    "AdamW",
    "Builder",
    "Cache",
    "CheckReport",
    "ConvolutionUnit",
    "Event",
    "Example",
    "GlensideError",
    "Limits",
    "Momentum",
    "Node",
    "OpenProgram",
    "Program",
    "Result",
    "Rule",
    "Snapshot",
    "SystolicArray",
    "Target",
    "check_gradient",
    "check_onnxruntime",
    "check_rule",
    "compile",
    "evaluate",
    "export_egglog",
    "export_jax",
    "export_onnx",
    "facts",
    "fold",
    "from_jax",
    "from_stablehlo",
    "from_torch",
    "fuzz",
    "gradient",
    "index_map",
    "jvp",
    "load",
    "load_onnx",
    "models",
    "npu_program",
    "op",
    "open_program",
    "operator",
    "optimize",
    "parse",
    "parse_target",
    "primitives",
    "quantize_weights",
    "require",
    "rewrite",
    "rule",
    "save",
    "target",
    "train",
    "training_step",
    "value_and_gradient",
    "when",
]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        from glenside.ir.names import suggestion

        raise AttributeError(f"module 'glenside' has no attribute {name!r}{suggestion(name, _EXPORTS)}")
    module = import_module(_EXPORTS[name])
    value = module if name in _MODULES else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
