"""The tensors of a text: declared in it, or given beside it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from glenside.ir.names import shortened, spelled_name
from glenside.ir.operators.requirements import spelled
from glenside.ir.text.arguments import Arguments
from glenside.ir.text.building import at, make_term
from glenside.ir.text.reader import Reader, Token
from glenside.ir.types import Dims, Tensor

DECLARATIONS = ("input", "constant")


class Tensors:
    """Tensors by name. What a text does not declare is found in `shapes` when it is first read."""

    def __init__(
        self,
        reader: Reader,
        shapes: Mapping[str, Sequence[int]],
        dtypes: Mapping[str, str],
        constants: Collection[str],
    ) -> None:
        self._reader, self._shapes, self._dtypes, self._constants = reader, shapes, dtypes, constants
        self._tensors: dict[str, Tensor] = {}

    def names(self) -> Collection[str]:
        """All names that can be read."""
        return self._tensors.keys() | self._shapes.keys()

    def declare(self, opening: Token) -> None:
        """Read (input name (shape ..) dtype) or (constant ..), whose parenthesis is open already."""
        arguments = Arguments(self._reader)
        keyword = self._reader.take().text
        name = arguments.name(keyword, "name")
        dims = arguments.shape(keyword)
        dtype = arguments.optional_dtype(keyword, self._dtypes.get(name, "float32"))
        arguments.close(keyword, "name shape dtype")
        tensor = f"tensor {spelled_name(name)}"
        if name in self._tensors:
            raise self._reader.error(f"{tensor} is declared twice", opening.offset)
        given = Dims(self._shapes.get(name, dims))
        if given != dims:
            message = f"{tensor} is declared with the shape {spelled(dims)}, but given with {spelled(given)}"
            raise self._reader.error(message, opening.offset)
        if self._dtypes.get(name, dtype) != dtype:
            message = f"{tensor} is declared with the dtype {dtype}, but given with {self._dtypes[name]}"
            raise self._reader.error(message, opening.offset)
        self._add(Tensor(name, dims, dtype, keyword == "constant"), opening)

    def get(self, name: str, token: Token) -> Tensor:
        if name not in self._tensors:
            if name not in self._shapes:
                plain = spelled_name(name)
                message = (
                    f"no shape for tensor {shortened(name, quoted=True)}: declare it with (input {plain} (shape ..)) "
                    f"or give it with --shapes or --shape {plain}=.."
                )
                raise self._reader.error(message, token.offset)
            dims, dtype = Dims(self._shapes[name]), self._dtypes.get(name, "float32")
            self._add(Tensor(name, dims, dtype, name in self._constants), token)
        return self._tensors[name]

    def _add(self, tensor: Tensor, token: Token) -> None:
        at(self._reader, token, lambda: make_term("access-tensor", "access-tensor", [tensor]))
        self._tensors[tensor.name] = tensor
