"""Keeps shared objects on disk, so that a compiled program is loaded again without compilation.

Each is a file, `KEY.DIGEST.so`, in a folder next to the results. The key covers everything that the object was compiled
from; the digest is that of its bytes. Loaded code runs in this process, so only files that no other user can have
written and whose digest is right are trusted. Any other folder, or one that cannot be written, is not used.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from glenside.cache.store import default_path

LIMIT = 256 << 20
"""The limit of bytes of all files; the least recently used are deleted first."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def find(key: str) -> bytes | None:
    """Returns the bytes of the shared object of a key, the same bytes that were compared with the digest."""
    try:
        folder = _folder()
        for path in sorted(folder.glob(f"{key}.*.so")) if _is_own(folder) else ():
            content = _believed(path)
            if content is not None:
                with suppress(OSError):
                    os.utime(path)
                return content
    except (OSError, RuntimeError):  # RuntimeError: there is no home directory
        pass
    return None


def keep(key: str, made: Path) -> Path | None:
    """Keeps a file under a key, whole or not at all; returns None if it cannot be kept."""
    try:
        folder, content = _folder(), made.read_bytes()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_own(folder):
            return None
        handle, name = tempfile.mkstemp(suffix=".so", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            path = folder / f"{key}.{hashlib.sha256(content).hexdigest()}.so"
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        _make_room(folder, path)
        return path
    except (OSError, RuntimeError):
        return None


def _folder() -> Path:
    return default_path().parent.resolve() / "native"


def _is_own(folder: Path) -> bool:
    """True if no other user can have put files there, or replaced the folder."""
    if not hasattr(os, "geteuid"):
        return False
    try:
        found = folder.lstat()
        above = [parent.stat() for parent in folder.parents]
    except OSError:
        return False
    open_above = any(p.st_mode & stat.S_IWOTH and not p.st_mode & stat.S_ISVTX for p in above)
    of_others = any(p.st_uid not in (0, os.geteuid()) for p in above)  # they could put another folder there
    return stat.S_ISDIR(found.st_mode) and _is_mine(found) and not open_above and not of_others


def _is_mine(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_WRITE


def _believed(path: Path) -> bytes | None:
    """Returns the bytes of a file, opened once, if it belongs to this user and has the digest of its name; otherwise
    None.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
        found = os.fstat(file.fileno())
        content = file.read() if stat.S_ISREG(found.st_mode) and _is_mine(found) else b""
    return content if hashlib.sha256(content).hexdigest() == path.name.split(".")[1] else None


def _make_room(folder: Path, newest: Path) -> None:
    found = [(path.stat(), path) for path in folder.iterdir() if path != newest]
    total = sum(s.st_size for s, _ in found) + newest.stat().st_size
    for status, path in sorted(found, key=lambda entry: entry[0].st_mtime):
        if total <= LIMIT:
            return
        path.unlink(missing_ok=True)
        total -= status.st_size
