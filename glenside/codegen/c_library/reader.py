"""C that runs written programs on arrays of a file: they are read back by it."""

from __future__ import annotations

from collections.abc import Sequence

from glenside.codegen.c_library.exported import Exported, kind_in_c
from glenside.codegen.c_library.files import declarations
from glenside.ir.size_expression import FLOOR_QUOTIENT

NO_MEMORY = 3
"""Exit status of a `reader` if memory does not suffice."""


def reader(program: Exported, name: str, names: Sequence[str]) -> str:
    """Returns a C `main` that runs programs of one header, each under its own name, on arrays of a file.

    Arguments: WEIGHTS GIVEN RESULTS THREADS, and the open sizes; results are written to file RESULTS. The exit status
    is NO_MEMORY if memory does not suffice.
    """
    arrays, others = program.arrays, [own for own in names if own != name]
    sizes = {n: f"(size_t)({program.elements(b.dims)}) * sizeof({kind_in_c(b)})" for n, b in arrays.items()}
    results = [*arrays][len(program.inputs) :]
    lines = [f'#include <errno.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include "{name}.h"']
    lines += [line for own in others for line in declarations(own, program)]
    lines += [FLOOR_QUOTIENT] if any("floor_quotient" in size for size in sizes.values()) else []
    lines += ["int main(int count, char **words)", "{", f"    if (count != {5 + len(program.sizes)}) return 1;"]
    lines += [f"    int64_t {size} = atoll(words[{5 + i}]);" for i, size in enumerate(program.sizes.values())]
    lines += [
        '    FILE *given = fopen(words[2], "rb"), *made = fopen(words[3], "wb");',
        "    if (!given || !made) return 1;",
    ]
    for argument, buffer in arrays.items():
        lines.append(f"    {kind_in_c(buffer)} *{argument} = malloc({sizes[argument]} + 1);")
        lines.append(f"    if (!{argument}) return {NO_MEMORY};")
        if argument not in results:
            size = sizes[argument]
            lines.append(f"    if (fread({argument}, 1, {size}, given) != {size}) return 1;")
    for own in names:
        lines += [f"    errno = 0;\n    {own}_program *{own}_own = {own}_open(words[1], atoi(words[4]));"]
        lines += [f"    if (!{own}_own && errno == ENOMEM) return {NO_MEMORY};"]
        lines += [f'    if (!{own}_own) {{ fputs("{own}_open refuses its weights", stderr); return 2; }}']
        lines += [f"    memset({argument}, 0xA5, {sizes[argument]});" for argument in results]
        lines += [f"    int {own}_status = {own}_run({', '.join([f'{own}_own', *program.parameters])});"]
        lines += [f"    if ({own}_status == -1) return {NO_MEMORY};"]
        lines += [f'    if ({own}_status) {{ fprintf(stderr, "{own}_run gives %d", {own}_status); return 2; }}']
        lines += [f"    if (fwrite({n}, 1, {sizes[n]}, made) != {sizes[n]}) return 1;" for n in results]
        lines += [f"    {own}_close({own}_own);"]
    return "\n".join([*lines, "    return fclose(made) ? 1 : 0;", "}\n"])
