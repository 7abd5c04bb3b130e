"""Files that are whole or not there: written beside their path, read back, and renamed."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from glenside.ir.errors import BadInput
from glenside.ir.names import one_line

PathLike = str | os.PathLike[str]

Verify = Callable[[Path], None]
"""Reads a file back under a temporary name; raises WrittenWrong where it is not what was meant."""


class WrittenWrong(BadInput):
    """What was written for a path is read back as something else. Nothing has taken the path's place."""

    status = 1

    def __init__(self, path: PathLike, fault: str, *_: Any) -> None:
        words = "is not written: what was written for it is read back as something else"
        super().__init__(f"{shown(path)} {words}: {fault}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.message,)


def _again(message: str) -> WrittenWrong:
    """One that came from another process."""
    found = WrittenWrong("", "")
    found.message, found.args = message, (message,)
    return found


@contextmanager
def replacing(path: PathLike, verify: Verify | None = None) -> Iterator[IO[bytes]]:
    """A new file that takes the place of the path when the block ends well, and is gone otherwise.

    verify  reads the file back before it takes the place, and raises where it is not what was meant
    """
    temporary: Path | None = None
    try:
        target = Path(os.path.realpath(path))
        if target.exists() and not stat.S_ISREG(target.stat().st_mode):
            # A device or a pipe is written to, not replaced; opening a folder fails, as it should.
            with open(target, "wb") as device:
                yield device
            return
        mark = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:12]
        _remove_left(target.parent, mark)
        temporary, file = _created(target.parent, mark)
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if verify is not None:
                verify(temporary)
            if target.exists():
                shutil.copymode(target, temporary)
            os.replace(temporary, target)
    except (OSError, ValueError) as error:
        raise failed("write", path, error) from None
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()


def _created(folder: Path, mark: str) -> tuple[Path, IO[bytes]]:
    """A new file that is locked; one that another writer removed before it was locked counts for nothing."""
    while True:
        path = folder / f".{mark}-{secrets.token_hex(8)}.tmp"
        file = open(path, "xb")
        try:
            if _lock(file) and path.exists():
                return path, file
        except BaseException:
            file.close()
            path.unlink(missing_ok=True)
            raise
        file.close()
        path.unlink(missing_ok=True)


def _lock(file: IO[bytes]) -> bool:
    """True if nobody else has a file, which is ours then until it is closed; also where a system has no locks."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass
    return True


def _remove_left(folder: Path, mark: str) -> None:
    """Remove temporary files for one path, of processes that were killed before they removed them."""
    if importlib.util.find_spec("fcntl") is None:
        return  # nobody knows whose they are
    for path in folder.glob(f".{mark}-*.tmp"):
        with suppress(OSError), open(path, "rb") as file:
            if _lock(file):
                path.unlink()


def failed(what: str, path: PathLike, error: OSError | ValueError) -> BadInput:
    """What the system says when a path cannot be opened."""
    return BadInput(f"cannot {what} {shown(path)}: {(error.strerror if isinstance(error, OSError) else '') or error}")


def shown(path: PathLike) -> str:
    """Return a path as one line."""
    return one_line(os.fspath(path))
