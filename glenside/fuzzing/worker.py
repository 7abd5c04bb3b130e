"""Runs cases in a process of its own, so that a crash, a hang or a native fault ends nothing else.

Run as `python -m glenside.fuzzing.worker CPU_SECONDS MEMORY_BYTES`. It reads jobs as lines of JSON from standard input,
and writes outcomes as lines of JSON to the original standard output.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import sys
import threading
import time
from importlib import import_module
from typing import Any

from glenside.egraph.worker import resident_bytes

OUT_OF_TIME, OUT_OF_MEMORY = 78, 79
"""Exit statuses of a process that ended itself."""
_LOOK = 0.25


class Watch(threading.Thread):
    """Ends this process when a door uses too much processor time or memory, or when the parent is gone."""

    def __init__(self, seconds: float, memory: int) -> None:
        super().__init__(daemon=True)
        self.seconds, self.memory, self.parent = seconds, memory, os.getppid()
        self.since: float | None = None

    def run(self) -> None:
        while True:
            time.sleep(_LOOK)
            if os.getppid() != self.parent:
                os._exit(0)
            since = self.since
            if since is not None and processor_seconds() - since > self.seconds:
                faulthandler.dump_traceback()
                os._exit(OUT_OF_TIME)
            if resident_bytes() > self.memory:
                faulthandler.dump_traceback()
                os._exit(OUT_OF_MEMORY)


def processor_seconds() -> float:
    """Returns processor seconds of this process and of compilers that it ran."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(own.ru_utime + own.ru_stime for own in used)


def main(seconds: float, memory: int) -> None:
    """Serves until the input ends."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of others is not a message
    faulthandler.enable()

    def send(**message: Any) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    from glenside.fuzzing.cases import Case
    from glenside.fuzzing.visiting import DOORS, visited

    watch = Watch(seconds, memory)
    watch.start()
    send(ready=True)
    for line in sys.stdin:
        job = json.loads(line)
        import_module(job["module"])  # registers the door, if it is not one of ours
        watch.since = processor_seconds()
        case = Case(job["form"], job["text"], job["seed"])
        outcome = visited(case, DOORS[job["door"]], lambda stage: send(stage=stage))
        watch.since = None
        send(
            verdict=outcome.verdict.value,
            place=outcome.place,
            detail=outcome.detail,
            notes=outcome.notes,
            seconds=outcome.seconds,
        )


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
