"""Reads and writes programs, shapes and arrays in files. A failure is a BadInput that names the path."""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from glenside.ir.bounds import TEXT_BYTES
from glenside.ir.dtypes import DTYPES, RECORDS, bits_dtype
from glenside.ir.errors import BadInput
from glenside.ir.interrupts import undisturbed
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.replacing import PathLike, Verify, WrittenWrong, failed, replacing, shown
from glenside.ir.text import parse, print_program


def load(
    path: PathLike,
    shapes: Mapping[str, Sequence[int]] | None = None,
    weights: PathLike | None = None,
    dtypes: Mapping[str, str] | None = None,
) -> Program:
    """Loads the program of a text file, with the values of constants from an .npz file.

    A tensor that the text does not declare is a constant if `weights` holds it, with that array's shape and dtype.
    """
    text = read_text(path)
    arrays = array_outlines(weights) if weights is not None else {}
    program = parse(
        text,
        shapes={**{name: array.shape for name, array in arrays.items()}, **(shapes or {})},
        dtypes={**{name: array.dtype.name for name, array in arrays.items()}, **(dtypes or {})},
        constants=arrays.keys(),
        file=str(path),
    )
    try:
        program = replace(program, name=Path(path).stem).with_constants(arrays)
        return program if weights is None else program.with_constants(read_arrays(weights))
    except BadInput as error:
        raise BadInput(f"{weights}: {error.message}") from None


def save(program: Program, path: PathLike) -> None:
    """Writes the text, and the values of constants as .npz next to it, if there are any: both files or neither."""

    def verify(text: str) -> None:
        require_same_program(path, parse(text), program)

    write_with_arrays(path, print_program(program), program.constants, verify)


def require_same_program(path: PathLike, found: Program, meant: Program) -> None:
    """Raises WrittenWrong unless a program that was read back equals the intended one: its term and its tensors."""
    if found.term is not meant.term:
        raise WrittenWrong(path, "its term differs")
    if list(found.tensors.items()) != list(meant.tensors.items()):
        raise WrittenWrong(path, f"its tensors are {', '.join(found.tensors)} instead of {', '.join(meant.tensors)}")


def read_text(path: PathLike) -> str:
    """Returns the text of a UTF-8 file. Raises BadInput."""
    try:
        # A byte order mark is not part of the text.
        return read_bytes(path).decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise BadInput(f"cannot read {shown(path)}: it is not UTF-8 text") from None


def place_in_toml(path: PathLike, table: str, key: str) -> str:
    """Returns the file, with the line of a key in a table if it is found.

    With `table` "", it looks for a table of that name, or for a key outside of all tables.
    """
    here = ""
    for number, line in enumerate(read_text(path).splitlines(), 1):
        header = re.match(r"\s*\[\s*([\w.\"'-]+)", line)
        if header is not None:
            here = header[1].strip("\"'")
            if not table and here == key:
                return f"{path}:{number}"
        elif here == table and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line):
            return f"{path}:{number}"
    return str(path)


def read_toml(path: PathLike) -> dict[str, Any]:
    """Returns the content of a TOML file. Raises BadInput."""
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path} is not TOML: {error}") from None
    except (ValueError, RecursionError):
        raise BadInput(f"{path} holds a number that is too long, or is nested too deeply") from None


def read_bytes(path: PathLike, most: int = TEXT_BYTES) -> bytes:
    """Returns the bytes of a regular file of at most `most` bytes. Raises BadInput."""
    try:
        _refuse_special(path)
        with open(path, "rb") as file:
            content = file.read(most + 1)
    except (OSError, ValueError) as error:
        raise failed("read", path, error) from None
    if len(content) > most:
        raise BadInput(f"cannot read {shown(path)}: it has more than {most:,} bytes")
    return content


def _refuse_special(path: PathLike) -> None:
    """Refuses devices and pipes, which may never end or never be written. Raises BadInput and OSError."""
    if not stat.S_ISREG(mode := os.stat(path).st_mode) and not stat.S_ISDIR(mode):
        raise BadInput(f"cannot read {shown(path)}: it is not a regular file")


def read_shapes(path: PathLike) -> dict[str, tuple[int, ...]]:
    """Reads shapes by tensor name from JSON: {"x": [1, 3, 32, 32]}."""
    try:
        pairs = json.loads(read_text(path), object_pairs_hook=_Pairs)
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}:{error.lineno}:{error.colno}: a shapes file requires JSON, got {error.msg}") from None
    except (ValueError, RecursionError):
        raise BadInput(f"{path} requires an object of shapes, got JSON that is too deep or a number too long") from None
    if not isinstance(pairs, _Pairs):
        raise BadInput(f'{path} requires one object of shapes, such as {{"x": [1, 3, 32, 32]}}')
    shapes: dict[str, tuple[int, ...]] = {}
    for name, dims in pairs:
        if name in shapes:
            raise BadInput(f"{path} requires one shape for {json.dumps(name)}, got two")
        good = isinstance(dims, list) and not isinstance(dims, _Pairs)
        if not good or not all(type(n) is int and 0 <= n < 2**63 for n in dims):
            raise BadInput(f"{path} requires a list of sizes for {json.dumps(name)}, got {_abbreviated(dims)}")
        shapes[name] = tuple(dims)
    return shapes


class _Pairs(list[tuple[str, Any]]):
    """A JSON object that keeps duplicate names."""


def _abbreviated(value: Any) -> str:
    text = json.dumps(dict(value) if isinstance(value, _Pairs) else value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def read_array(path: PathLike) -> Array:
    """Reads the array of a .npy file. Objects are never loaded."""
    with _opened(path, "a .npy file") as file:
        return _array(file)


def array_outlines(path: PathLike) -> dict[str, Array]:
    """Returns zeros in no memory, with the shapes and dtypes of a .npz file's arrays, to check these before reading."""
    return _members(path, _outline)


def read_arrays(path: PathLike) -> dict[str, Array]:
    """Reads the arrays of a .npz file by name. Objects are never loaded."""
    return _members(path, _array)


def _members(path: PathLike, read: Callable[[IO[bytes]], Array]) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    with _opened(path, "a .npz file") as file, zipfile.ZipFile(file) as archive:
        for member in archive.namelist():
            with archive.open(member) as entry:
                arrays[member.removesuffix(".npy")] = read(entry)
    return arrays


def _array(file: IO[bytes]) -> Array:
    array: Array = np.lib.format.read_array(file, allow_pickle=False)
    known = _known(array.dtype)
    return array.astype(array.dtype.newbyteorder("="), copy=False).view(known)


def _outline(file: IO[bytes]) -> Array:
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, _, dtype = read[np.lib.format.read_magic(file)](file)
    return np.broadcast_to(np.zeros((), _known(dtype)), shape)


def _known(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Returns the native dtype, or the dtype whose elements are stored as bits. Raises BadInput."""
    if dtype.hasobject:
        raise BadInput("it holds Python objects, which are never loaded")
    if dtype.names is not None and len(dtype.names) == 1 and dtype.names[0] in _AS_BITS:
        name = dtype.names[0]
        if dtype[name].newbyteorder("=") != bits_dtype(name):
            raise BadInput(f"elements of {name} are stored as {bits_dtype(name)}, but it has {dtype[name]}")
        return np.dtype(name)
    if dtype.kind == "V":
        words = f"a dtype that numpy cannot name in a file, {dtype}; save the bits of bfloat16, for example, instead"
        raise BadInput(f'it has {words}: array.view([("bfloat16", "u2")])')
    if dtype.name not in DTYPES:
        raise BadInput(f"its dtype {dtype.name} is none of {', '.join(DTYPES)}")
    return dtype.newbyteorder("=")


@contextmanager
def _opened(path: PathLike, kind: str) -> Iterator[IO[bytes]]:
    """Opens a file of arrays. Other errors of numpy and zipfile become BadInput."""
    try:
        _refuse_special(path)
        file = open(path, "rb")
    except (OSError, ValueError) as error:
        raise failed("read", path, error) from None
    with file:
        try:
            yield file
        except BadInput as error:
            raise BadInput(f"cannot read {shown(path)}: {error.message}") from None
        except Exception as error:
            reason = f"it is not {kind}, or it is damaged"
            if "allow_pickle" in str(error):
                reason = "it holds Python objects, which are never loaded"
            raise BadInput(f"cannot read {shown(path)}: {reason}") from None


def write_text(path: PathLike, text: str, verify: Verify | None = None) -> None:
    """Writes a text whole or not at all. Raises BadInput."""
    write_bytes(path, text.encode(), verify)


def write_with_arrays(
    path: PathLike, text: str, arrays: Mapping[str, Array], verify: Callable[[str], None] | None = None
) -> None:
    """Writes a text, and arrays as .npz next to it if there are any: both files or neither.

    Both are read back before they take their names; `verify` is given the text. Raises BadInput.
    """

    def read_back(written: Path) -> None:
        if verify is not None:
            verify(read_text(written))

    with ExitStack() as files:
        if arrays:
            beside = Path(path).with_suffix(".npz")
            file = files.enter_context(replacing(beside))
            dump_arrays(file, arrays)
            file.flush()
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                require_same_arrays(beside, Path(file.name), arrays)
        files.enter_context(replacing(path, read_back)).write(text.encode())


def write_together(
    contents: Mapping[Path, bytes], verify: Callable[[Mapping[Path, Path]], None] = lambda written: None
) -> None:
    """Writes files that belong together: all of them, the last one first, or none.

    `verify` maps each path to the temporary file that holds its content, before the files take their names. Raises
    BadInput.
    """
    written: dict[Path, Path] = {}
    with ExitStack() as files:
        for path, content in contents.items():
            file = files.enter_context(replacing(path))
            file.write(content)
            file.flush()  # find a full disk before the first file takes its name
            os.fsync(file.fileno())
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                _require_same_bytes(path, Path(file.name), content)
                written[path] = Path(file.name)
        if len(written) == len(contents):
            verify(written)
        with undisturbed(then=True):  # do not stop between two renames
            files.close()


def write_bytes(path: PathLike, content: bytes, verify: Verify | None = None) -> None:
    """Writes a file whole or not at all; `verify` reads it back first. Raises BadInput."""
    with replacing(path, verify) as file:
        file.write(content)


def write_array(path: PathLike, array: Array) -> None:
    """Writes one array as .npy and compares it with the file as read back; the file is complete or not written. Raises
    BadInput.
    """
    with replacing(path, lambda written: _require_same(path, "", read_array(written), array)) as file:
        np.lib.format.write_array(file, _plain(path, array), allow_pickle=False)


def write_arrays(path: PathLike, arrays: Mapping[str, Array]) -> None:
    """Writes an .npz file, after comparing it with what is read back; equal arrays give equal bytes."""
    with replacing(path, lambda written: require_same_arrays(path, written, arrays)) as file:
        dump_arrays(file, arrays)


def require_same_arrays(path: PathLike, written: Path, arrays: Mapping[str, Array]) -> None:
    """Raises WrittenWrong unless the .npz file written for `path` holds these arrays, bit by bit."""
    found = read_arrays(written)
    if found.keys() != arrays.keys():
        raise WrittenWrong(path, f"its arrays are {', '.join(found) or 'none'} instead of {', '.join(arrays)}")
    for name, array in arrays.items():
        _require_same(path, name, found.pop(name), array)


def _require_same(path: PathLike, name: str, found: Array, meant: Array) -> None:
    meant = np.asarray(meant)
    bits = [np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (found, meant)]
    alike = found.dtype.name == meant.dtype.name and found.shape == meant.shape
    if not alike or not np.array_equal(bits[0], bits[1]):
        raise WrittenWrong(path, f"the array {name or 'in it'} differs")


def _require_same_bytes(path: PathLike, written: Path, content: bytes) -> None:
    with open(written, "rb") as file:
        same = all(file.read(_PIECE) == content[at : at + _PIECE] for at in range(0, len(content) + 1, _PIECE))
    if not same:
        raise WrittenWrong(path, "its bytes differ")


_PIECE = 1 << 24


def dump_arrays(file: IO[bytes], arrays: Mapping[str, Array]) -> None:
    """Writes arrays as .npz into an open file. Raises BadInput for a name or a dtype that .npz cannot hold."""
    # numpy.savez takes names as keywords, so an array could not be called "file", and it stores the time.
    with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")
            if member.filename != f"{name}.npy":
                raise BadInput(f"an .npz file cannot hold the name {json.dumps(name)}")
            with archive.open(member, "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, _plain(name, array), allow_pickle=False)


_AS_BITS = tuple(record.name for record in RECORDS.values() if record.wider)
"""Dtypes that a .npy file cannot name: it stores their bits as unsigned integers in a field named by the dtype.

Integers of 4 and 2 bits take a byte each, as in memory.
"""


def _bits_of(name: str) -> np.dtype[Any]:
    return np.dtype([(name, bits_dtype(name).newbyteorder("<"))])


def _plain(name: PathLike, array: Array) -> Array:
    value = np.asarray(array)
    if value.dtype.name in _AS_BITS:
        return np.ascontiguousarray(value).view(_bits_of(value.dtype.name)).reshape(value.shape)
    if value.dtype.name not in DTYPES:
        raise BadInput(f"cannot write {shown(name)}: its dtype {value.dtype.name} is none of {', '.join(DTYPES)}")
    return value
