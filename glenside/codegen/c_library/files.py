"""Prints a program as C files.

For one machine it is one file; for several, one file NAME_MACHINE.c for each, and NAME.c, which chooses the first that
the processor can run. Every public name has the prefix NAME_, so NAME may be any word, keywords included.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from string import Template

from glenside.codegen.c_library.exported import Constant, Exported, kind_in_c, product_in_c
from glenside.codegen.emit_c.translation_units import NOW
from glenside.codegen.open_sizes.template import OpenBuffer
from glenside.codegen.processor.model import PLAIN, Machine
from glenside.codegen.runtime.compile_and_load import build_line, object_line
from glenside.codegen.runtime.compiled_function import MOST_THREADS
from glenside.ir.open_program import words_of
from glenside.ir.size_expression import FLOOR_QUOTIENT

LINE = 64
"""Bytes of a cache line, and of the header of weights."""


@dataclass(frozen=True)
class Part:
    """A program for one machine: its C name, and where its constants are in the file of weights.

    head     the first bytes of the file, which tell it from others
    places   position of a buffer -> offset of its values in the file
    bytes    size of the file
    """

    name: str
    program: Exported
    head: bytes
    places: Mapping[int, int]
    bytes: int

    @property
    def machine(self) -> str:
        return machine_name(self.program.machine)


def machine_name(machine: Machine | None) -> str:
    """Returns the name of a machine."""
    return PLAIN if machine is None else machine.name


def file_names(name: str, machines: Sequence[Machine | None]) -> list[str]:
    """Returns the names of the C files of a program, the main one first."""
    parts = [f"{name}_{machine_name(machine)}.c" for machine in machines] if len(machines) > 1 else []
    return [f"{name}.c", *parts]


def build_lines(programs: Sequence[Exported], name: str) -> Iterator[str]:
    """Yields the commands by which a user compiles the files, all in one folder."""
    first, *others = file_names(name, [one.machine for one in programs])
    if not others:
        yield build_line(first, programs[0].machine)
        return
    for one, path in zip(programs, others, strict=True):
        yield object_line(path, one.machine)
    yield build_line(" ".join([first, *(path.removesuffix("c") + "o" for path in others)]), None)


def texts(parts: Sequence[Part], name: str, weights: str) -> dict[str, str]:
    """Returns the texts of the C files and the header, by file name; the file of weights is `weights`.weights."""
    programs = [part.program for part in parts]
    main, *others = file_names(name, [one.machine for one in programs])
    build = "\n         ".join(build_lines(programs, name))
    said = f"""/* cc: {build}
   With -D{name.upper()}_MAIN it is a program that runs itself on zeros, and says how long that takes. */"""
    end = [f"#ifdef {name.upper()}_MAIN", _main(programs[0], name, weights), "#endif\n"]
    header = "\n".join(_header(programs[0], name, weights)) + "\n"
    if not others:
        lines = [said, *_unit(parts[0], f'#include "{name}.h"\n'), *end]
        return {main: "\n".join(lines), f"{name}.h": header}
    end[1:1] = ["#include <stdio.h>\n#include <time.h>", NOW]
    end[1:1] = [FLOOR_QUOTIENT] * ("floor_quotient" in end[-2])
    found = {main: "\n".join([said, *_choice(parts, name), *end]), f"{name}.h": header}
    for path, part in zip(others, parts, strict=True):
        line = f"/* cc: {object_line(path, part.program.machine)} */"
        found[path] = "\n".join([line, *_unit(part, "\n".join(declarations(part.name, part.program)))])
    return found


def declarations(name: str, program: Exported) -> Iterator[str]:
    """Yields the declarations of a part."""
    yield f"typedef struct {name}_program {name}_program;"
    yield f"{name}_program *{name}_open(const char *weights, int threads);"
    yield f"{name}_program *{name}_open_mapped(const void *weights, size_t bytes, int threads);"
    yield f"int {name}_run({name}_program *program, {program.declared()});"
    yield f"void {name}_close({name}_program *program);"
    yield f"const char *{name}_machine(const {name}_program *program);\n"


_HAS_MATRICES = """#ifdef __x86_64__
#include <cpuid.h>
/* Compilers do not ask for it: AMX-TILE and AMX-BF16. */
static int has_matrices(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 1) && (d >> 22 & 1);
}
#endif
"""


def _of_matrices(machine: Machine | None) -> bool:
    return machine is not None and any(word.startswith("amx") for word in machine.needs)


def _choice(parts: Sequence[Part], name: str) -> Iterator[str]:
    """Yields the C that chooses the first part that the processor can run."""
    yield "#define _GNU_SOURCE\n#include <stdint.h>\n#include <stdlib.h>\n"
    yield f'#include "{name}.h"\n'
    for part in parts:
        yield from declarations(part.name, part.program)
    yield f"struct {name}_program {{ int part; void *program; }};\n"
    machines = [(number, part.program.machine) for number, part in enumerate(parts, 1)]
    if any(_of_matrices(machine) for _, machine in machines):
        yield _HAS_MATRICES
    yield "/* The first part that this processor runs, counted from 1; 0 for none. */\nstatic int chosen(void)\n{"
    family = next((machine.family for _, machine in machines if machine and machine.family), "")
    if family == "x86_64":
        yield "#ifdef __x86_64__\n    __builtin_cpu_init();"
    elif family:
        yield f"#ifdef __{family}__"
    for number, machine in machines:
        if machine is not None and machine.family:
            words = [word for word in machine.needs if not word.startswith("amx")] if family == "x86_64" else []
            asks = [f'__builtin_cpu_supports("{word.replace("_", "")}")' for word in words]
            asks += ["has_matrices()"] if _of_matrices(machine) else []
            yield f"    if ({' && '.join(asks) or '1'}) return {number};"
    yield from ["#endif"] if family else []
    yield f"    return {next((n for n, machine in machines if machine is None or not machine.family), 0)};\n}}\n"
    for own, parameters, arguments in (
        ("open", "const char *weights, int threads", "weights, threads"),
        ("open_mapped", "const void *weights, size_t bytes, int threads", "weights, bytes, threads"),
    ):
        yield f"{name}_program *{name}_{own}({parameters})\n{{"
        yield f"    {name}_program *program = calloc(1, sizeof *program);\n    if (!program) return 0;"
        yield "    program->part = chosen();\n    switch (program->part) {"
        yield from (
            f"    case {n}: program->program = {p.name}_{own}({arguments}); break;" for n, p in enumerate(parts, 1)
        )
        yield "    }\n    if (program->program) return program;\n    free(program);\n    return 0;\n}\n"
    given = ", ".join(["part", *parts[0].program.parameters])
    yield f"int {name}_run({name}_program *program, {parts[0].program.declared()})\n{{"
    yield "    if (!program) return -2;\n    void *part = program->program;\n    switch (program->part) {"
    yield from (f"    case {n}: return {p.name}_run({given});" for n, p in enumerate(parts, 1))
    yield "    }\n    return -1;\n}\n"
    yield f"void {name}_close({name}_program *program)\n{{\n    if (!program) return;\n    switch (program->part) {{"
    yield from (f"    case {n}: {p.name}_close(program->program); break;" for n, p in enumerate(parts, 1))
    yield "    }\n    free(program);\n}\n"
    yield f"const char *{name}_machine(const {name}_program *program)\n{{\n    switch (program->part) {{"
    yield from (f"    case {n}: return {p.name}_machine(program->program);" for n, p in enumerate(parts, 1))
    yield '    }\n    return "";\n}\n'


def _text(text: str) -> str:
    """Returns a text that may stand in a comment of C."""
    return re.sub("[^ -~]|[*]/", "?", text)


def _said(buffer: OpenBuffer, name: str) -> str:
    return f"{_text(name)}, ({_text(' '.join(map(str, buffer.dims)))}) {buffer.dtype}"


def _header(program: Exported, name: str, weights: str) -> Iterator[str]:
    guard = f"GLENSIDE_{name.upper()}_H"
    yield f"#ifndef {guard}\n#define {guard}\n#include <stddef.h>\n#include <stdint.h>\n"
    yield f"/* {_text(program.title)}, made by Glenside. Arrays are in C order."
    for size, argument in program.sizes.items():
        yield f"   {argument}: the size {_text(size)}, {words_of(program.ranges[size])}"
    names: dict[int, list[str]] = {}
    for place, result in zip(program.returned, program.result_names(), strict=True):
        names.setdefault(place, []).append(result)
    said = [*(buffer.name for buffer in program.inputs), *(" and ".join(own) for own in names.values())]
    for (argument, buffer), own in zip(program.arrays.items(), said, strict=True):
        yield f"   {argument}: {_said(buffer, own)}"
    yield "*/"
    yield '#ifdef __cplusplus\nextern "C" {\n#endif'
    yield f"typedef struct {name}_program {name}_program;\n"
    yield f"/* The program with the weights of a file, {weights}.weights, which is mapped, on up to {MOST_THREADS}"
    yield "   threads; 0 where it is another file, or memory or threads do not suffice. One program runs once at a"
    yield "   time; there may be many. */"
    yield f"{name}_program *{name}_open(const char *weights, int threads);\n"
    yield f"/* The same with the content of the file, at a multiple of {LINE} bytes, which several programs may share,"
    yield "   and which stays there until they are closed. */"
    yield f"{name}_program *{name}_open_mapped(const void *weights, size_t bytes, int threads);\n"
    yield "/* 0; -1 where memory does not suffice; -2 where a pointer is 0; above 0 where an index that was given lies"
    yield f"   outside of its axis{'; -3 where a size is outside of its range' if program.ranges else ''}. */"
    yield f"int {name}_run({name}_program *program, {program.declared()});\n"
    yield f"void {name}_close({name}_program *program);"
    yield "/* Which of the machines it was compiled for runs it. */"
    yield f"const char *{name}_machine(const {name}_program *program);"
    yield "#ifdef __cplusplus\n}\n#endif\n#endif"


def _unit(part: Part, declared: str) -> Iterator[str]:
    """Yields the C of a part: only its functions are public."""
    program, name = part.program, part.name
    yield "#define PUBLIC static"
    yield program.source
    yield "#include <stdio.h>\n#include <fcntl.h>\n#include <sys/mman.h>\n#include <sys/stat.h>\n#include <unistd.h>"
    yield declared
    windows, held = _windows(part)
    yield f"struct {name}_program {{\n    const unsigned char *weights;\n    void *mapped;"
    yield "    unsigned char *arena;\n    void *threads;"
    if program.ranges:
        yield f"    int64_t has_sizes, sizes[{len(program.ranges)}], table[{max(1, program.table)}];"
    if windows:
        yield f"    const unsigned char *windows[{len(windows)}];\n    unsigned char *copies;"
    yield "};\n"
    yield f"static const unsigned char {name}_head[{LINE}] = {{{', '.join(map(str, part.head))}}};\n"
    yield _OPEN.substitute(
        NAME=name,
        LINE=LINE,
        MACHINE=part.machine,
        WEIGHTS=part.bytes,
        ARENA=program.between + program.memory + LINE,
        SCRATCH=program.scratch,
        MOST_THREADS=MOST_THREADS,
        MORE=f" && (program->copies = malloc({max(1, held)}))" if windows else "",
        FREE="\n    free(program->copies);" if windows else "",
    )
    if program.ranges:
        yield from _resize(program, name, [line for lines in windows.values() for line in lines])
    numbers = {buffer: f"x{number}" for number, buffer in enumerate(program.inputs, 1)}
    numbers |= {buffer: f"y{number}" for number, buffer in enumerate(program.results, 1)}
    places = {place: f"program->weights + {offset}" for place, offset in part.places.items()}
    places |= {place: f"program->windows[{number}]" for number, place in enumerate(windows)}
    places |= {place: f"program->arena + {offset}" for place, offset in program.values.items()}
    places |= {place: numbers[buffer] for place, buffer in enumerate(program.buffers) if buffer in numbers}
    yield f"int {name}_run({name}_program *program, {program.declared()})\n{{"
    yield "    if (!program) return -2;"
    yield "    int status;"
    if program.ranges:
        yield from (f"    if ({_is_outside(program, size)}) return -3;" for size in program.ranges)
        sizes = ", ".join(program.sizes.values())
        yield f"    if ((status = {name}_resize(program, (const int64_t[]){{{sizes}}}))) return status;"
    absent = [_is_absent(program, argument, buffer) for argument, buffer in program.arrays.items()]
    if any(absent):
        yield f"    if ({' || '.join(filter(None, absent))}) return -2;"
    arena = f"program->arena + {program.between}" if program.between else "program->arena"
    for number, call in enumerate(program.calls, 1):
        given = [places[place] for place in call.given]
        given += [f"program->table + {call.numbers}"] * bool(program.ranges)
        yield f"    const void *given{number}[] = {{{', '.join(given) or '0'}}};"
        yield f"    void *results{number}[] = {{{', '.join(places[place] for place in call.results)}}};"
        yield f"    if ((status = {call.run}(given{number}, results{number}, {arena}, program->threads, 0)))"
        yield f"        return status;{f' /* {_text(call.name)} */' if call.name else ''}"
    yield "    return 0;\n}\n"


def _is_absent(program: Exported, argument: str, buffer: OpenBuffer) -> str:
    """Returns the condition that an array is needed and not given."""
    count = program.least_elements(buffer)
    if count is None:
        return f"(!{argument} && {program.elements(buffer.dims)} > 0)"
    return f"!{argument}" if count else ""


def _is_outside(program: Exported, size: str) -> str:
    """Returns the condition that a size is outside of its range."""
    (low, high, step), argument = program.ranges[size], program.sizes[size]
    return f"{argument} < {low} || {argument} > {high}" + (f" || ({argument} - {low}) % {step}" if step > 1 else "")


def _resize(program: Exported, name: str, windows: Sequence[str]) -> Iterator[str]:
    """Yields the function that computes the numbers of sizes, and the places of windows of constants."""
    yield f"static int {name}_resize({name}_program *program, const int64_t *n)\n{{"
    yield "    if (program->has_sizes && !memcmp(program->sizes, n, sizeof program->sizes)) return 0;"
    yield "    program->has_sizes = 0;"
    used = " ".join([*(program.elements(dims) for dims, _ in program.limits), *windows])
    for number, argument in enumerate(program.sizes.values()):
        if re.search(rf"\b{argument}\b", used):
            yield f"    const int64_t {argument} = n[{number}];"
    for dims, most in program.limits:
        yield f"    if ({program.elements(dims)} > {most}) return -3;"
    yield from windows
    yield from (f"    {table}(n, program->table + {begin});" for table, begin in program.tables.items())
    yield "    memcpy(program->sizes, n, sizeof program->sizes);"
    yield "    program->has_sizes = 1;\n    return 0;\n}\n"


def _windows(part: Part) -> tuple[dict[int, list[str]], int]:
    """Returns, by the positions of constants, the C that finds a window of each; and the bytes of those copied."""
    found: dict[int, list[str]] = {}
    held = 0
    for place, constant in part.program.constants.items():
        if constant.window is not None:
            found[place], copied = _window(part, place, constant, len(found), held)
            held += copied
    return found, held


def _window(part: Part, place: int, constant: Constant, number: int, held: int) -> tuple[list[str], int]:
    """Returns the C that finds a window, and the bytes of its copy at the greatest sizes: 0 if it is in one piece."""
    program, buffer, window = part.program, part.program.buffers[place], constant.window
    assert window is not None, "it is a window"
    whole, item = constant.array.shape, constant.array.itemsize
    dims = [dim.in_c(program.sizes) for dim in buffer.dims]
    begins = [f"{window.greatest[name]} - {program.sizes[name]}" if name else "0" for name in window.begins]
    begin = [product_in_c([b, str(item * prod(whole[a + 1 :]))]) for a, b in enumerate(begins)]
    source = f"program->weights + {part.places[place]}"
    if all(dim == str(size) for dim, size in zip(dims[1:], whole[1:], strict=True)):
        return [f"    program->windows[{number}] = {source}{f' + {begin[0]}' if begin[0] != '0' else ''};"], 0
    lines = [f"    unsigned char *w{number} = program->copies + {held};\n    program->windows[{number}] = w{number};"]
    for axis, dim in enumerate(dims[:-1]):
        lines.append(f"    for (int64_t a{axis} = 0; a{axis} < {dim}; a{axis}++)")
    at = [product_in_c([f"a{axis}", str(item * prod(whole[axis + 1 :]))]) for axis in range(len(dims) - 1)]
    offset = " + ".join(term for term in (*at, *begin) if term != "0")
    row = product_in_c([dims[-1], str(item)])
    lines += [
        f"    {{ memcpy(w{number}, {source} + {offset}, (size_t)({row})); w{number} += {row}; }}",
    ]
    return lines, -(-item * prod(whole) // LINE) * LINE


def _main(program: Exported, name: str, weights: str) -> str:
    names = [*program.arrays]
    sizes = "".join(
        f"    int64_t {argument} = count > {3 + i} ? atoll(words[{3 + i}]) : {program.ranges[size][1]};\n"
        for i, (size, argument) in enumerate(program.sizes.items())
    )
    made = "".join(
        f"    {kind_in_c(b)} *{n} = calloc((size_t)({program.elements(b.dims)}) + 1, sizeof *{n});\n"
        for n, b in program.arrays.items()
    )
    return (
        "int main(int count, char **words)\n{\n"
        f'    const char *weights = count > 1 ? words[1] : "{weights}.weights";\n'
        f"    {name}_program *program = {name}_open(weights, count > 2 ? atoi(words[2]) : 1);\n"
        '    if (!program) { fprintf(stderr, "no weights\\n"); return 2; }\n'
        f"{sizes}{made}"
        f"    if ({' || '.join('!' + n for n in names)}) return 2;\n"
        "    double best = 1e9;\n"
        "    for (int i = 0; i < 20; i++) {\n"
        "        double begin = now(0);\n"
        f"        int status = {name}_run(program, {', '.join(program.parameters)});\n"
        "        if (status) return 1;\n"
        "        if (now(0) - begin < best) best = now(0) - begin;\n"
        "    }\n"
        '    printf("%.3f ms\\n", 1e3 * best);\n'
        + "".join(f"    free({n});\n" for n in names)
        + f"    {name}_close(program);\n    return 0;\n}}"
    )


_OPEN = Template(r"""/* Memory in large pages where the system has them: fewer addresses are looked up then. */
static void *in_large_pages(size_t bytes)
{
    size_t page = bytes < 1u << 22 ? ${LINE} : 1u << 21;
    bytes = (bytes + page - 1) / page * page;
    void *memory = aligned_alloc(page, bytes);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (memory && page > ${LINE}) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

/* The content of a file of ${WEIGHTS} bytes, mapped; 0 for another one. */
static void *mapped_file(const char *path)
{
    int file = path ? open(path, O_RDONLY) : -1;
    struct stat about;
    if (file < 0) return 0;
    void *found = MAP_FAILED;
    if (!fstat(file, &about) && about.st_size == ${WEIGHTS})
        found = mmap(0, ${WEIGHTS}, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    return found == MAP_FAILED ? 0 : found;
}

void ${NAME}_close(${NAME}_program *program)
{
    if (!program) return;
    if (program->threads) close_pool(program->threads);
    if (program->mapped) munmap(program->mapped, ${WEIGHTS});
    free(program->arena);${FREE}
    free(program);
}

${NAME}_program *${NAME}_open_mapped(const void *weights, size_t bytes, int threads)
{
    if (!weights || bytes != ${WEIGHTS} || (uintptr_t)weights % ${LINE} || threads > ${MOST_THREADS}) return 0;
    if (memcmp(weights, ${NAME}_head, sizeof ${NAME}_head)) return 0;
    ${NAME}_program *program = calloc(1, sizeof *program);
    if (!program) return 0;
    program->weights = weights;
    program->arena = in_large_pages(${ARENA} + (size_t)(threads > 1 ? threads : 1) * ${SCRATCH});
    int whole = program->arena != 0${MORE};
    if (whole && threads > 1) whole = (program->threads = open_pool(threads)) != 0;
    if (whole) return program;
    ${NAME}_close(program);
    return 0;
}

${NAME}_program *${NAME}_open(const char *weights, int threads)
{
    void *mapped = mapped_file(weights);
    ${NAME}_program *program = ${NAME}_open_mapped(mapped, ${WEIGHTS}, threads);
    if (program) program->mapped = mapped;
    else if (mapped) munmap(mapped, ${WEIGHTS});
    return program;
}

const char *${NAME}_machine(const ${NAME}_program *program) { (void)program; return "${MACHINE}"; }
""")
