"""Writes a package `onnxruntime` that crashes or hangs at a chosen point, as a runtime may do to its process."""

from __future__ import annotations

from pathlib import Path

WAYS = {
    "SIGSEGV": "os.kill(os.getpid(), signal.SIGSEGV)",
    "SIGABRT": "os.abort()",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "status 7": "os._exit(7)",
}
WAITS = "ctypes.PyDLL(None).sleep(1000)"
"""Statements that never return, and let no other thread of the process run."""
_MODULE = """
import ctypes, os, signal, types
__version__ = "0.0"
class GraphOptimizationLevel:
    ORT_DISABLE_ALL = ORT_ENABLE_BASIC = ORT_ENABLE_EXTENDED = ORT_ENABLE_ALL = 0
class SessionOptions:
    def add_session_config_entry(self, *_): pass
def set_default_logger_severity(_): pass
class InferenceSession:
    def __init__(self, *_, **options):
        print("this is no answer")
        {load}
    def get_inputs(self): return [types.SimpleNamespace(name="x", type="tensor(float)", shape=[2, 3])]
    get_outputs = get_inputs
    def run(self, _, inputs):
        {run}
        return list(inputs.values())
"""


def write_runtime(folder: Path, load: str = "pass", run: str = "pass") -> None:
    """Writes the package into a folder for sys.path; `statements` run when a model is loaded and when it runs."""
    (folder / "onnxruntime").mkdir(parents=True)
    (folder / "onnxruntime" / "__init__.py").write_text(_MODULE.format(load=load, run=run))
