"""Defines the verdicts of a check, and the reasons for which it ends early."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from glenside.check.branches import Missing
from glenside.check.comparison import OutOfTime
from glenside.ir.errors import GlensideError
from glenside.ir.interrupts import answered

EXACT = "exact"
AS_REALS = "equal as reals"
"""The verdict in place of `EXACT` for a target that computes with rounded numbers."""
NOT_CHECKED = "not checked"
"""The start of the verdict for what could not be compared."""
_REACHED = "equal where reached"


def is_equal(verdict: str) -> bool:
    """True if a verdict says that everything was compared and nothing differs."""
    return verdict in (EXACT, AS_REALS) or verdict.startswith(_REACHED)


def verdict_of(equal: int, trials: int, reason: str, missing: Sequence[Missing]) -> str:
    """Returns the verdict on a value that never differed.

    equal    the number of rounds in which it was equal
    trials   the number of rounds that a complete check has
    reason   why there were fewer rounds
    missing  the branch outcomes that no round reached
    """
    if equal < trials:
        return f"{NOT_CHECKED}: {reason}{f' (equal in {equal} of {trials} trials)' if equal else ''}"
    return f"{_REACHED}: {missing[0]}{f', and {len(missing) - 1} more' if missing[1:] else ''}" if missing else EXACT


@dataclass
class Ending:
    """The end of a comparison: `stopped` is "", "time-limit" or "interrupted", and `reason` is a sentence or ""."""

    reason: str = ""
    stopped: str = ""


@contextmanager
def ending(reason: str = "") -> Iterator[Ending]:
    """Catches the errors that end the comparison in its block, and records them.

    reason  why the comparison need not begin, or ""
    """
    end = Ending(reason)
    try:
        yield end
    except OutOfTime:
        end.stopped, end.reason = "time-limit", "time ran out"
    except KeyboardInterrupt:
        answered()
        end.stopped, end.reason = "interrupted", "interrupted"
    except MemoryError:
        end.reason = "memory does not suffice"
    except GlensideError as error:
        end.reason = str(error)
