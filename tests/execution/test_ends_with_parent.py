"""Tests that interleaved processes end with their parent, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the system does not end children with their parents")
SERVED = "from glenside.execution.peers.serve import end_with_parent\nend_with_parent()\nprint(flush=True)\ninput()"
PARENT = {
    "that stands still": f"""
import os, signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {SERVED!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
os.kill(child.pid, signal.SIGSTOP)
print(child.pid, flush=True)
signal.pause()
""",
    "that is busy": """
import os, signal
from glenside.execution.interleaved_runs import busy
with busy(1):
    print(open(f"/proc/self/task/{os.getpid()}/children").read(), flush=True)
    signal.pause()
""",
}


def _runs(process: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    except OSError:
        return False


@pytest.mark.parametrize("which", PARENT)
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM], ids=lambda s: s.name)
def test_it_ends_with_its_parent(which: str, ending: signal.Signals) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT[which]], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    words = parent.stdout.readline().split()
    assert words, "there is a child"
    child = int(words[0])
    assert _runs(child)
    parent.send_signal(ending)
    parent.wait()
    parent.stdout.close()
    try:
        for _ in range(200):
            if not _runs(child):
                break
            time.sleep(0.05)
        assert not _runs(child)
    finally:
        if _runs(child):
            os.kill(child, signal.SIGKILL)
