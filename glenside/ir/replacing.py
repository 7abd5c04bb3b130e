"""Replaces files atomically: writes a temporary file next to the path, reads it back, and renames it."""

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
"""Reads a file back under its temporary name; raises WrittenWrong if its content is not the intended one."""


class WrittenWrong(BadInput):
    """A file that reads back differently from what was written. The path itself is unchanged."""

    status = 1

    def __init__(self, path: PathLike, fault: str, *_: Any) -> None:
        words = "was not written: its content reads back differently"
        super().__init__(f"{shown(path)} {words}: {fault}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.message,)


def _unpickled(message: str) -> WrittenWrong:
    """Rebuilds an error that was pickled in another process."""
    found = WrittenWrong("", "")
    found.message, found.args = message, (message,)
    return found


@contextmanager
def replacing(path: PathLike, verify: Verify | None = None) -> Iterator[IO[bytes]]:
    """Opens a new file that replaces the path if the block succeeds, and is removed otherwise.

    verify  reads the file back before it is renamed, and raises if its content is wrong
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
    """Creates a file and locks it; retries if another writer removed it before it was locked."""
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
    """True if no other process holds the file, which is then locked until it is closed; also true without lock
    support.
    """
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass
    return True


def _remove_left(folder: Path, mark: str) -> None:
    """Removes temporary files for a path that killed processes left behind."""
    if importlib.util.find_spec("fcntl") is None:
        return  # their owners are unknown
    for path in folder.glob(f".{mark}-*.tmp"):
        with suppress(OSError), open(path, "rb") as file:
            if _lock(file):
                path.unlink()


def failed(what: str, path: PathLike, error: OSError | ValueError) -> BadInput:
    """Returns the error for a path that cannot be opened, with the system's reason."""
    return BadInput(f"cannot {what} {shown(path)}: {(error.strerror if isinstance(error, OSError) else '') or error}")


def shown(path: PathLike) -> str:
    """Returns a path as one line."""
    return one_line(os.fspath(path))
