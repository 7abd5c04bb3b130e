"""Finds the C compiler (CC, the system's, or the Clang in zig, which pip installs) and identifies it."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from glenside.ir.errors import BadInput
from glenside.ir.interrupts import undisturbed
from glenside.ir.packages import install_command

_SYSTEM = ("cc", "gcc", "clang")
_PATIENCE = 30.0
"""Timeout of a compiler's identification, in seconds."""
_MACROS = ("-dM", "-E", "-x", "c", os.devnull)
_WRITE = ("DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES")
"""Environment variables that would make a compiler write further files."""
_SANITIZED = re.compile(r"__SANITIZE_(ADDRESS|THREAD|HWADDRESS)__|-fsanitize=\S*(address|thread|memory|leak)")


class Kind(Enum):
    """The kind of a compiler, which decides its options."""

    GCC = "GCC"
    CLANG = "Clang"
    ZIG = "zig"


class TakesTooLong(BadInput):
    """A command that was killed at its timeout."""


@dataclass(frozen=True)
class Compiler:
    """A command that compiles C, its kind, and a digest of the command, its file and its predefined macros."""

    command: tuple[str, ...]
    kind: Kind
    identity: str

    def __str__(self) -> str:
        return shlex.join(self.command)

    def run(
        self,
        tasks: Sequence[Sequence[str | Path]],
        folder: Path,
        seconds: float | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Runs the compiler for all tasks at the same time; its caches and temporary files go to `folder`.

        Calls `meanwhile` once they run. Raises BadInput with the first error, and TakesTooLong after `seconds`.
        """
        own = {"ZIG_LOCAL_CACHE_DIR": str(folder), "TMPDIR": str(folder)}
        for done in completed([[*self.command, *map(str, words)] for words in tasks], own, seconds, meanwhile):
            if done.returncode:
                raise BadInput(f"{self} cannot compile the generated C: {_said(done)}")


def compiler() -> list[str]:
    """Returns the command that compiles C: CC, split as by a shell, else the system's, else zig's, else []."""
    try:
        named = shlex.split(os.environ.get("CC", ""))
    except ValueError as error:
        raise BadInput(f"CC requires a command, got {os.environ['CC']!r}: {error}") from error
    return named or next(([name] for name in _SYSTEM if shutil.which(name)), []) or _zig()


def _zig() -> list[str]:
    """Returns the program in the package `ziglang`; run as a module, the current folder could shadow the package."""
    found = find_spec("ziglang")
    places = found.submodule_search_locations if found is not None else None
    paths = [Path(place) / "zig" for place in places or ()]
    return next(([str(path), "cc"] for path in paths if path.is_file()), [])


def known_compiler() -> Compiler:
    """Returns the identified compiler. Raises BadInput if there is none, or it is neither GCC nor Clang."""
    command = compiler()
    if not command:
        raise BadInput(f"there is no C compiler: install one, name it in CC, or {install_command('native')}")
    path = shutil.which(command[0])
    found = Path(path).stat() if path is not None else None
    return _asked(tuple(command), path, found and (found.st_size, found.st_mtime_ns))


@lru_cache(maxsize=16)
def _asked(command: tuple[str, ...], *file: object) -> Compiler:
    """Identifies a compiler; memoized until its file changes."""
    (done,) = completed([[*command, *_MACROS]], {}, _PATIENCE)
    if done.returncode:
        raise BadInput(f"{shlex.join(command)} cannot list its predefined macros: {_said(done)}")
    if _SANITIZED.search(done.stdout + " ".join(command)):
        raise BadInput(f"{shlex.join(command)} compiles with a sanitizer, which this process runs without")
    if "#define __GNUC__" not in done.stdout:
        raise BadInput(f"{shlex.join(command)} is not a C compiler with GCC's extensions; GCC, Clang and zig cc are")
    kind = Kind.GCC
    if "#define __clang__" in done.stdout:  # only zig knows a processor `baseline`
        (other,) = completed([[*command, "-Werror", "-mcpu=baseline", *_MACROS]], {}, _PATIENCE)
        kind = Kind.CLANG if other.returncode else Kind.ZIG
    text = "\0".join([*command, *map(str, file), done.stdout])
    return Compiler(command, kind, hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest())


def completed(
    commands: Sequence[Sequence[str]],
    environment: dict[str, str],
    seconds: float | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> list[subprocess.CompletedProcess[str]]:
    """Runs commands at the same time, and calls `meanwhile` once they run.

    An exception, Ctrl-C too, kills them and their child processes.

    Raises BadInput if a command does not start, TakesTooLong if one takes more than `seconds`.
    """
    begun: list[subprocess.Popen[str]] = []
    done: list[subprocess.CompletedProcess[str]] = []
    command = commands[0]
    try:
        for command in commands:
            with undisturbed(then=True):  # every started process is in the list
                begun.append(_begun(command, environment))
        meanwhile()
        for command, process in zip(commands, begun, strict=True):
            out, errors = process.communicate(timeout=seconds)
            done.append(subprocess.CompletedProcess(command, process.returncode, out, errors))
        return done
    except subprocess.TimeoutExpired as error:
        raise TakesTooLong(f"{shlex.join(command)} did not end within {seconds:.0f} seconds") from error
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise BadInput(f"{shlex.join(command).removesuffix(' ' + shlex.join(_MACROS))} does not run: {said}") from error
    finally:
        for process in begun[len(done) :]:
            _end(process)


def _begun(command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    """Starts a process in a process group of its own: a compiler driver starts child processes."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={k: v for k, v in os.environ.items() if k not in _WRITE} | {"LC_ALL": "C", **environment},
        start_new_session=True,
    )


def _end(process: subprocess.Popen[str]) -> None:
    if sys.platform != "win32":
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _said(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr or "").strip().splitlines()
    return next((line for line in lines if "error" in line), f"it ended with status {done.returncode}")
