"""Keeps results on disk, so that the same query is answered immediately the next time.

It is one SQLite file in the folder that $GLENSIDE_CACHE names, or in the user's cache folder. Several processes may use
it concurrently. A value is compressed text with a checksum; nothing is unpickled or evaluated. An unreadable file is
moved aside with one note, and the search runs as without a cache. Another version uses other keys.
"""

from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
import sys
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from glenside import __version__
from glenside.ir.errors import BadInput
from glenside.ir.replacing import PathLike

FORMAT = 1
LIMIT = 512 << 20
"""The limit of bytes of kept values; the least recently used are deleted first."""
_LONGEST = 1 << 28
"""The bytes up to which a value is not compressed."""
_BUSY = 2.0  # seconds to wait for another process
_COLUMNS = (
    "key TEXT PRIMARY KEY, value BLOB NOT NULL, checksum TEXT NOT NULL, size INTEGER NOT NULL, used REAL NOT NULL"
)

Note = Callable[[str], None]


class CacheFull(BadInput):
    """Raised when the disk is full. Nothing that was in the cache is lost."""


def default_path() -> Path:
    """Returns the folder named by $GLENSIDE_CACHE, or the user's cache folder."""
    name = f"answers-{FORMAT}.sqlite"
    given = os.environ.get("GLENSIDE_CACHE")
    if given:
        return Path(given) / name
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", str(Path.home())))
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "glenside" / name


def key_of(**parts: str) -> str:
    """Returns one key for named parts, this version and this code, so that an edited rule never finds an older
    result.
    """
    digest = hashlib.sha256()
    for name, text in sorted({**parts, "version": __version__, "code": code_version(), "format": str(FORMAT)}.items()):
        for data in (name.encode(), text.encode(errors="surrogateescape")):
            digest.update(f"{len(data)}:".encode())
            digest.update(data)
    return digest.hexdigest()


@cache
def code_version() -> str:
    """A digest of all source code that a result depends on."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for folder in (root, root / "extract", root / "rewrites"):  # links in a clone, which a walk does not follow
        for path in sorted(folder.rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + b"\0")
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _print_note(text: str) -> None:
    print(f"glenside: note: {text}", file=sys.stderr)


class Cache:
    """A store of texts by key, used as a context manager. Every failure except a full disk becomes a note and a
    miss.
    """

    def __init__(self, path: PathLike | None = None, note: Note = _print_note, limit: int = LIMIT) -> None:
        self.path, self.limit = Path(path) if path is not None else default_path(), limit
        self._note, self._noted = note, False
        self._connection: sqlite3.Connection | None = None
        try:
            self._connection = self._opened()
        except sqlite3.DatabaseError as error:
            self._broken(error)
        except OSError as error:
            self._say(f"the cache {self.path} cannot be used ({error.strerror or error})")

    def _opened(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        connection = sqlite3.connect(self.path, timeout=_BUSY, isolation_level=None)
        try:
            with suppress(sqlite3.OperationalError):  # another process opens it; any mode that it finds will do
                connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute(f"CREATE TABLE IF NOT EXISTS answers ({_COLUMNS})")
            connection.execute("SELECT key, value, checksum, size, used FROM answers LIMIT 1").fetchone()
        except BaseException:
            connection.close()
            raise
        return connection

    def _broken(self, error: sqlite3.DatabaseError) -> None:
        """Moves aside a file that is not a cache, and starts a new one; not for a lock or a read-only folder."""
        if isinstance(error, sqlite3.OperationalError) and "no such column" not in str(error):
            self._say(f"the cache {self.path} cannot be used ({error})")
            return
        aside = self.path.with_suffix(".corrupt")
        self._say(f"the cache {self.path} cannot be read ({error}); it is set aside as {aside.name}")
        try:
            os.replace(self.path, aside)
            for ending in ("-wal", "-shm"):
                Path(f"{self.path}{ending}").unlink(missing_ok=True)
            self._connection = self._opened()
        except (OSError, sqlite3.DatabaseError):
            self._connection = None

    def _say(self, text: str) -> None:
        if not self._noted:
            self._noted = True
            self._note(f"{text}; answers are found without it")

    def get(self, key: str) -> str | None:
        """Returns the text of a key, or None."""
        if self._connection is None:
            return None
        try:
            row = self._connection.execute("SELECT value, checksum FROM answers WHERE key = ?", (key,)).fetchone()
            if row is None:
                return None
            if hashlib.sha256(row[0]).hexdigest() != row[1]:
                raise zlib.error("a checksum is wrong")
            whole = zlib.decompressobj()
            text = whole.decompress(row[0], _LONGEST).decode()
            if whole.unconsumed_tail:
                raise zlib.error(f"it has more than {_LONGEST:,} bytes")
        except (sqlite3.DatabaseError, zlib.error, TypeError, ValueError) as error:
            self._say(f"an answer in the cache {self.path} cannot be read ({error})")
            return None
        try:
            self._connection.execute("UPDATE answers SET used = ? WHERE key = ?", (time.time(), key))
        except sqlite3.DatabaseError:
            pass  # another process writes, or the folder is read-only: the result is valid anyway
        return text

    def put(self, key: str, text: str) -> None:
        """Keeps a text, whole or not at all. Raises CacheFull if the disk is full."""
        if self._connection is None:
            return
        value = zlib.compress(text.encode(), 3)
        row = (key, value, hashlib.sha256(value).hexdigest(), len(value), time.time())
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", row)
                self._make_room()
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        except (sqlite3.DatabaseError, OSError) as error:
            if "full" in str(error) or getattr(error, "errno", None) == errno.ENOSPC:
                raise CacheFull(
                    f"the disk of the cache {self.path} is full, so the answer was not kept;"
                    " free some room, name another folder in GLENSIDE_CACHE, or use --no-cache"
                ) from error
            self._say(f"the cache {self.path} cannot be written ({error})")

    def _make_room(self) -> None:
        assert self._connection is not None
        total = self.size
        if total <= self.limit:
            return
        for key, size in self._connection.execute("SELECT key, size FROM answers ORDER BY used").fetchall():
            if total <= self.limit:
                break
            self._connection.execute("DELETE FROM answers WHERE key = ?", (key,))
            total -= size

    def distrust(self, why: str) -> None:
        """Marks an entry that was read as not trusted."""
        self._say(f"an answer in the cache {self.path} is not believed ({why})")

    def _number(self, query: str) -> int:
        return 0 if self._connection is None else int(self._connection.execute(query).fetchone()[0])

    def __len__(self) -> int:
        return self._number("SELECT COUNT(*) FROM answers")

    @property
    def size(self) -> int:
        """The bytes of all values."""
        return self._number("SELECT COALESCE(SUM(size), 0) FROM answers")

    def clear(self) -> None:
        """Deletes all results."""
        if self._connection is not None:
            self._connection.execute("DELETE FROM answers")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
