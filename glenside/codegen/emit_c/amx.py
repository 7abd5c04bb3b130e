"""C of matrix products (`bf16_split_matmul`): with AMX tile registers where the process may use them, else in loops.

AMX tiles of x86-64 ("Intel 64 and IA-32 Architectures Software Developer's Manual", AMX) are eight registers of up to
16 rows of 64 bytes. A thread configures their sizes before it uses them, and releases them. Linux saves their state for
a process that requests it.
"""

from __future__ import annotations

from glenside.codegen.loop_ir.bf16_split_matmul import CHUNK, COLUMNS, PRODUCTS

HELD = "matrix"
"""The C variable with the configured rows of the tile registers; 0 if they are not in use."""
_REGISTERS = """#if (defined __AMX_BF16__ || defined __AMXBF16__) && defined __linux__ && defined __x86_64__
#define TILE_MOVE(text, place, apart) __asm__ volatile(text : : "r"(place), "r"((int64_t)apart) : "memory")
#define TILE_LOAD(to, from) TILE_MOVE("tileloadd (%0,%1,1), %%tmm" #to, from, 64)
#define TILE_LOAD_WIDE(to, from) TILE_MOVE("tileloadd (%0,%1,1), %%tmm" #to, from, 128)
#define TILE_STORE(from, to) TILE_MOVE("tilestored %%tmm" #from ", (%0,%1,1)", to, 128)
#define TILE_ZERO(to) __asm__ volatile("tilezero %%tmm" #to : : )
#define TILE_PRODUCT(to, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #to : : )
static inline int has_matrices(void) /* 158, arch_prctl: 0x1023 asks for a state, of which 18 is that of tiles */
{
    static int known; /* 1 where they are there, 2 where not: every thread finds the same */
    int found = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (!found) {
        int64_t status = 158;
        __asm__ volatile("syscall" : "+a"(status) : "D"((int64_t)0x1023), "S"((int64_t)18) : "rcx", "r11", "memory");
        found = status ? 2 : 1;
        __atomic_store_n(&known, found, __ATOMIC_RELAXED);
    }
    return found == 1;
}
static inline int matrix_open(int64_t *held, int64_t rows) /* of one register */
{
    if (!has_matrices()) return 0;
    if (*held != rows) {
        struct { uint8_t palette, start, none[14]; uint16_t bytes[16]; uint8_t rows[16]; } sizes = {.palette = 1};
        for (int i = 0; i < 8; i++) {
            sizes.bytes[i] = 64;
            sizes.rows[i] = i < 6 ? (uint8_t)rows : 16;
        }
        __asm__ volatile("ldtilecfg %0" : : "m"(sizes));
        *held = rows;
    }
    return 1;
}
static inline void matrix_close(int64_t *held)
{
    if (*held) __asm__ volatile("tilerelease" : : );
}
#else
static inline void matrix_close(int64_t *held) { (void)held; }
#endif"""
_ROW = """/* Two chains of products are added up, as the unit does, before they are added to a sum. */
static inline void matrix_row(float *to, const uint16_t *x, const uint16_t *y)
{
    float total[2][COLUMNS] = {{0}};
    for (int64_t k = 0; k < CHUNK; k++)
        for (int64_t j = 0; j < COLUMNS; j++) {
            const uint16_t *z = y + j / 16 * (16 * CHUNK) + k / 2 * 32 + j % 16 * 2 + k % 2;
            total[k % 2][j] += float_of_bfloat16(x[k]) * float_of_bfloat16(*z);
        }
    for (int64_t j = 0; j < COLUMNS; j++) to[j] += total[0][j] + total[1][j];
}"""
_FUNCTION = """static inline void matrix_PARTS(int64_t *held, float *sums, const uint16_t *a, const uint16_t *b,
                            const uint16_t *later, int64_t rows, int64_t steps, int64_t lines, int adds)
{
#ifdef TILE_LOAD
    if (matrix_open(held, rows / 2)) {
        const int64_t size = rows * CHUNK;
        float *below = sums + rows * (COLUMNS / 2);
        if (adds) {
            TILE_LOAD_WIDE(0, sums); TILE_LOAD_WIDE(1, sums + 16);
            TILE_LOAD_WIDE(2, below); TILE_LOAD_WIDE(3, below + 16);
        } else {
            TILE_ZERO(0); TILE_ZERO(1); TILE_ZERO(2); TILE_ZERO(3);
        }
        for (int64_t step = 0; step < steps; step++, a += PARTS * size, b += PARTS * COLUMNS * CHUNK) {
LINES
        }
        TILE_STORE(0, sums); TILE_STORE(1, sums + 16); TILE_STORE(2, below); TILE_STORE(3, below + 16);
        return;
    }
#endif
    (void)held; (void)later; (void)lines;
    for (int64_t i = 0; i < rows; i++) {
        float *to = sums + i * COLUMNS;
        for (int64_t j = 0; !adds && j < COLUMNS; j++) to[j] = 0;
        for (int64_t step = 0; step < steps; step++) {
            const uint16_t *x = a + step * PARTS * rows * CHUNK + i * CHUNK, *y = b + step * (PARTS * COLUMNS * CHUNK);
PLAIN
        }
    }
}"""


def matrix_functions(parts: int) -> list[str]:
    """Returns the C functions of a matrix product of numbers in `parts` bf16 parts, `matrix_PARTS` last."""
    columns = "TILE_LOAD(6, b + {0} * 1024); TILE_LOAD(7, b + {0} * 1024 + 512);"
    rows = "TILE_LOAD(4, a + {0} * size); TILE_LOAD(5, a + {0} * size + size / 2);"
    lines, held = [], (-1, -1)
    for p, q in PRODUCTS[parts]:
        loads = [rows.format(p)] * (p != held[0]) + [columns.format(q)] * (q != held[1])
        asks = "for (int64_t i = 0; i < lines; i++, later += 32) __builtin_prefetch(later, 0, 2);"
        products = "TILE_PRODUCT(0, 4, 6); TILE_PRODUCT(1, 4, 7); TILE_PRODUCT(2, 5, 6); TILE_PRODUCT(3, 5, 7);"
        lines += [*loads, asks, products]
        held = p, q
    plain = [
        f"            matrix_row(to, x + {p} * rows * CHUNK, y + {q} * COLUMNS * CHUNK);" for p, q in PRODUCTS[parts]
    ]
    products = "\n".join(f"            {line}" for line in lines)
    text = _FUNCTION.replace("LINES", products).replace("PLAIN", "\n".join(plain)).replace("PARTS", str(parts))
    row = _ROW.replace("COLUMNS", str(COLUMNS)).replace("CHUNK", str(CHUNK))
    return [_REGISTERS, row, text.replace("COLUMNS", str(COLUMNS)).replace("CHUNK", str(CHUNK))]


_RESIDUES = """static inline void residues_PARTS(float *sums, const float *a, const float *b, int64_t rows,
                                  int64_t steps, int adds)
{
    for (int64_t i = 0; i < rows; i++) {
        float *to = sums + i * COLUMNS;
        for (int64_t j = 0; !adds && j < COLUMNS; j++) to[j] = 0;
        for (int64_t step = 0; step < steps; step++) {
            double total[COLUMNS] = {0}; /* of CHUNK times PRODUCTS products below 2^42, so exact */
            for (int64_t k = 0; k < CHUNK; k++) {
                const float *x = a + step * PARTS * rows * CHUNK + i * CHUNK + k;
                const float *y = b + step * (PARTS * COLUMNS * CHUNK) + k / 2 * 32 + k % 2;
LINES
            }
            for (int64_t j = 0; j < COLUMNS; j++) to[j] = (float)near_0((double)to[j] + reduced(total[j]));
        }
    }
}"""
# If no summand passes through more than n roundings, the error of a sum is at most n u / (1 - n u) times the sum of
# magnitudes (Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, section 4.2). Here n is 16 in a
# chain, 1 for the two chains, 1 for each addition to the sum, and 1 for the parts left out. Products are exact.
_BOUNDS = """static inline void bounds_PARTS_KIND(num *sums, const KIND *a, const uint16_t *b, int64_t rows,
                                     int64_t steps, int adds)
{
    const double n = (double)(steps * PRODUCTS + CHUNK / 2 + 2) * (0x1p-24 + 0x1p-50), unit = n / (1 - n);
    for (int64_t i = 0; i < rows; i++) {
        num *to = sums + i * COLUMNS;
        double total[COLUMNS] = {0}, size[COLUMNS] = {0}, off[COLUMNS] = {0};
        for (int64_t j = 0; j < COLUMNS; j++) {
            if (!adds) to[j] = (num){0, 0};
            total[j] = to[j].v;
            size[j] = fabs(to[j].v) + to[j].e;
            off[j] = to[j].e;
        }
        for (int64_t step = 0; step < steps; step++)
            for (int64_t k = 0; k < CHUNK; k++) {
                const KIND *x = a + step * PARTS * rows * CHUNK + i * CHUNK + k;
                const uint16_t *y = b + step * (PARTS * COLUMNS * CHUNK) + k / 2 * 32 + k % 2;
LINES
            }
        for (int64_t j = 0; j < COLUMNS; j++)
            to[j] = (num){total[j], off[j] + (size[j] + off[j]) * unit + (double)(steps * CHUNK * PRODUCTS) * 0x1p-126};
    }
}"""
_EACH = """                for (int64_t j = 0; VALUE != 0 && j < COLUMNS; j++) {
                    BODY
                }"""


def _filled(text: str, parts: int, value: str, body: str) -> str:
    pairs = PRODUCTS[parts]
    lines = []
    for p, q in pairs:
        at = f"x[{p} * rows * CHUNK]"
        place = f"y[{q} * COLUMNS * CHUNK + j / 16 * (16 * CHUNK) + j % 16 * 2]"
        line = _EACH.replace("BODY", body).replace("VALUE", value)
        lines.append(line.replace("X", at).replace("Y", place))
    text = text.replace("LINES", "\n".join(lines)).replace("PRODUCTS", str(len(pairs)))
    return text.replace("PARTS", str(parts)).replace("COLUMNS", str(COLUMNS)).replace("CHUNK", str(CHUNK))


def residues_function(parts: int) -> str:
    """Returns the C function of the matrix product of residues, `residues_PARTS`; parts that are 0 are skipped."""
    return _filled(_RESIDUES, parts, "X", "total[j] += (double)X * (double)Y;")


def bounds_function(parts: int, kind: str) -> str:
    """Returns the C function of the matrix product with error bounds, `bounds_PARTS_KIND`; `kind`: C type of rows."""
    value, off = ("X.v", "X.e") if kind == "num" else ("(double)float_of_bfloat16(X)", "")
    body = f"double v = {value} * (double)float_of_bfloat16(Y); total[j] += v; size[j] += fabs(v);"
    body += f" off[j] += {off} * fabs((double)float_of_bfloat16(Y));" if off else ""
    return _filled(_BOUNDS.replace("KIND", kind), parts, "X.v" if kind == "num" else "X", body)
