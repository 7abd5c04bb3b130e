// A host that runs one program on the machine, in C11 and POSIX: how its registers, its queues and its DRAM are used.
//
//   driver PROGRAM.bin PORT DRAM [in:NAME=FILE] .. [out:NAME=FILE] ..
//
// PROGRAM.bin is the file that this driver was written with. PORT and DRAM are what the system offers to map: devices of
// UIO, udmabuf, or files in /dev/shm. Inputs are read from files, and outputs written to them, as the plain elements of
// the tensor, row by row, little-endian: integers. `program.h` says what they stand for, and which steps are left to the
// host, such as a clip; `glenside run PROGRAM.bin` takes these. `registers.h` and `program.h` are within what `glenside
// assemble --emit` writes.
//
// The host port takes a whole instruction in one cycle. Where a bus writes 64 bits at a time, the bridge between them
// gathers the eight words of an instruction's window, which are written in order, and passes them on with the last.
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "registers.h"

// A tensor in DRAM: its elements are at the addresses of one nest of loops after the other, the first loop innermost;
// -1 is a zero that is nowhere.
struct nest {
    uint64_t counts[3];
    int64_t base, strides[3];
};
struct place {
    const char *name;
    size_t size;  // bytes of an element
    size_t count;  // nests
    const struct nest *nests;
};

#include "program.h"

enum { WORDS = NPU_WINDOW / 8, PATIENCE = 60 /* seconds without a completed instruction */ };
static const char *const UNITS[NPU_UNITS] = NPU_UNIT_NAMES;
static const char *const FAULTS[] = {NPU_FAULTS};

#ifdef NPU_ELSEWHERE
// The machine is a model that is linked to this: the same steps without a device.
uint8_t *npu_open(const char *port, const char *dram, uint64_t size);
uint64_t npu_read(uint32_t address);
void npu_write(uint32_t address, const uint64_t *words, size_t count);
#else
static volatile uint64_t *port;

static void *mapped(const char *device, uint64_t size) {
    const int file = open(device, O_RDWR | O_SYNC);
    if (file < 0) return NULL;
    void *const found = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return found == MAP_FAILED ? NULL : found;
}

static uint8_t *npu_open(const char *device, const char *dram, uint64_t size) {
    port = mapped(device, NPU_SIZE);
    return port ? mapped(dram, size) : NULL;
}

static uint64_t npu_read(uint32_t address) { return port[address / 8]; }

static void npu_write(uint32_t address, const uint64_t *words, size_t count) {
    for (size_t i = 0; i < count; i++) port[address / 8 + i] = words[i];
}
#endif

static void set(uint32_t address, uint64_t value) { npu_write(address, &value, 1); }

static int failed(const char *what, const char *name) {
    fprintf(stderr, "driver: %s: %s\n", name, what);
    return 2;
}

// The bytes of a file that has so many, or NULL.
static uint8_t *content(const char *path, size_t size) {
    FILE *const file = fopen(path, "rb");
    uint8_t *const found = file ? malloc(size + 1) : NULL;
    const int good = found && fread(found, 1, size + 1, file) == size;
    if (file) fclose(file);
    if (good) return found;
    free(found);
    return NULL;
}

static uint64_t word_at(const uint8_t *bytes) {
    uint64_t found = 0;
    for (int i = 0; i < 8; i++) found |= (uint64_t)bytes[i] << 8 * i;
    return found;
}

static size_t elements(const struct place *own) {
    size_t found = 0;
    for (size_t n = 0; n < own->count; n++) {
        const uint64_t *const counts = own->nests[n].counts;
        found += (size_t)(counts[0] * counts[1] * counts[2]);
    }
    return found;
}

// Between DRAM and a tensor's own bytes, in one of the two directions.
static void move(const struct place *own, uint8_t *dram, uint8_t *tensor, int into_dram) {
    for (size_t n = 0; n < own->count; n++) {
        const struct nest *const nest = &own->nests[n];
        for (uint64_t i2 = 0; i2 < nest->counts[2]; i2++)
            for (uint64_t i1 = 0; i1 < nest->counts[1]; i1++)
                for (uint64_t i0 = 0; i0 < nest->counts[0]; i0++, tensor += own->size) {
                    const int64_t at = nest->base + (int64_t)i0 * nest->strides[0] + (int64_t)i1 * nest->strides[1] +
                                       (int64_t)i2 * nest->strides[2];
                    if (into_dram && at >= 0) memcpy(dram + at, tensor, own->size);
                    else if (!into_dram && at >= 0) memcpy(tensor, dram + at, own->size);
                    else if (!into_dram) memset(tensor, 0, own->size);
                }
    }
}

// The place that NAME=FILE names, and its file.
static const struct place *named(const struct place *places, const char *argument, const char **file) {
    for (; places->name; places++) {
        const size_t length = strlen(places->name);
        if (!strncmp(places->name, argument, length) && argument[length] == '=') {
            *file = argument + length + 1;
            return places;
        }
    }
    return NULL;
}

static int read_input(const struct place *own, const char *path, uint8_t *dram) {
    uint8_t *const tensor = content(path, elements(own) * own->size);
    if (!tensor) return failed("it is not a file with as many bytes as the input", path);
    move(own, dram, tensor, 1);
    free(tensor);
    return 0;
}

static int write_output(const struct place *own, const char *path, uint8_t *dram) {
    const size_t size = elements(own) * own->size;
    uint8_t *const tensor = malloc(size + 1);
    FILE *const file = tensor ? fopen(path, "wb") : NULL;
    int good = 0;
    if (file) {
        move(own, dram, tensor, 0);
        good = fwrite(tensor, 1, size, file) == size;
        good = !fclose(file) && good;
    }
    free(tensor);
    return good ? 0 : failed("it cannot be written", path);
}

// As many instructions as fit go to the queue of a unit, from the one on that comes next.
static void fill(int unit, const uint8_t *program, uint64_t *pushed) {
    for (uint64_t room = npu_read(NPU_AT_FREE(unit)); room && *pushed < PROGRAM_COUNT[unit]; room--, ++*pushed) {
        uint64_t words[WORDS] = {0};
        const uint8_t *const at = program + PROGRAM_QUEUE[unit] + *pushed * PROGRAM_WORDS[unit] * 8;
        for (size_t i = 0; i < PROGRAM_WORDS[unit]; i++) words[i] = word_at(at + 8 * i);
        npu_write(NPU_AT_INSTRUCTION(unit), words, WORDS);
    }
}

static uint64_t completed(void) {
    uint64_t found = 0;
    for (int unit = 0; unit < NPU_UNITS; unit++) found += npu_read(NPU_AT_COMPLETED(unit));
    return found;
}

// From queues that are empty to DRAM that holds the results.
static int run(const uint8_t *program) {
    uint64_t pushed[NPU_UNITS] = {0}, before = 0;
    if (npu_read(NPU_AT_CONTROL) & NPU_RUNNING || completed()) return failed("it has run, and was not reset", "machine");
    for (int unit = 0; unit < NPU_UNITS; unit++) {
        set(NPU_AT_TOTAL(unit), PROGRAM_COUNT[unit]);
        fill(unit, program, &pushed[unit]);
    }
    atomic_thread_fence(memory_order_seq_cst);  // what was written to DRAM is there before the machine reads it
    set(NPU_AT_CONTROL, NPU_START);
    time_t since = time(NULL);
    while (!(npu_read(NPU_AT_CONTROL) & NPU_DONE)) {
        for (int unit = 0; unit < NPU_UNITS; unit++)
            if (pushed[unit] < PROGRAM_COUNT[unit]) fill(unit, program, &pushed[unit]);
        const uint64_t now = completed();
        if (now != before) since = time(NULL);
        before = now;
        if (time(NULL) - since > PATIENCE) {
            for (int unit = 0; unit < NPU_UNITS; unit++)
                fprintf(stderr, "driver: %s completed %" PRIu64 " of %" PRIu64 "\n", UNITS[unit],
                        npu_read(NPU_AT_COMPLETED(unit)), PROGRAM_COUNT[unit]);
            return failed("it does not go on", "machine");
        }
    }
    atomic_thread_fence(memory_order_seq_cst);
    const uint64_t faults = npu_read(NPU_AT_FAULTS);
    for (size_t bit = 0; bit < sizeof FAULTS / sizeof *FAULTS; bit++)
        if (faults >> bit & 1) failed(FAULTS[bit], "machine");
    if (faults) return 1;
    printf("%" PRIu64 " cycles, in %" PRIu64 " of which a queue was empty\n", npu_read(NPU_AT_CYCLES),
           npu_read(NPU_AT_STARVED));
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 4) return failed("it takes PROGRAM.bin PORT DRAM [in:NAME=FILE] .. [out:NAME=FILE] ..", "usage");
    const char *file = NULL;
    for (int i = 4; i < argc; i++)
        if (!(strncmp(argv[i], "in:", 3) == 0 && named(PROGRAM_INPUTS, argv[i] + 3, &file)) &&
            !(strncmp(argv[i], "out:", 4) == 0 && named(PROGRAM_OUTPUTS, argv[i] + 4, &file)))
            return failed("it is neither in:NAME=FILE nor out:NAME=FILE of a tensor of the program", argv[i]);
    uint8_t *const program = content(argv[1], PROGRAM_SIZE);
    if (!program || memcmp(program + PROGRAM_SIZE - sizeof PROGRAM_DIGEST, PROGRAM_DIGEST, sizeof PROGRAM_DIGEST))
        return failed("it is not the program that this driver is for", argv[1]);
    uint8_t *const dram = npu_open(argv[2], argv[3], PROGRAM_DRAM_SIZE);
    if (!dram) return failed(strerror(errno), "PORT or DRAM cannot be mapped");
    memcpy(dram, program + PROGRAM_DRAM, PROGRAM_DRAM_SIZE);
    int status = 0;
    for (int i = 4; i < argc && !status; i++)
        if (strncmp(argv[i], "in:", 3) == 0) {
            const struct place *const own = named(PROGRAM_INPUTS, argv[i] + 3, &file);
            status = read_input(own, file, dram);
        }
    if (!status) status = run(program);
    for (int i = 4; i < argc && !status; i++)
        if (strncmp(argv[i], "out:", 4) == 0) {
            const struct place *const own = named(PROGRAM_OUTPUTS, argv[i] + 4, &file);
            status = write_output(own, file, dram);
        }
    if (!status && PROGRAM_REST[0]) fprintf(stderr, "driver: integers are written; left to the host: %s\n", PROGRAM_REST);
    free(program);
    return status;
}
