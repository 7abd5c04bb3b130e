// A model of the host port for rtl/driver.c: queues of four places, of which one instruction completes whenever `control`
// is read. It computes nothing: at the end every byte of DRAM is inverted, and what it was told is in the file `told`.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "registers.h"

enum { PLACES = 4, WORDS = NPU_WINDOW / 8 };
static uint8_t *dram;
static uint64_t dram_size, total[NPU_UNITS], taken[NPU_UNITS], completed[NPU_UNITS];
static int running, done;
static FILE *told;

static void wrong(const char *what, uint32_t address) {
    fprintf(stderr, "model: %s at 0x%03x\n", what, (unsigned)address);
    exit(9);
}

uint8_t *npu_open(const char *port, const char *memory, uint64_t size) {
    told = fopen(port, "wb");
    (void)memory;
    dram_size = size;
    return dram = malloc(size);
}

static void step(void) {
    int rest = 0;
    for (int unit = 0; unit < NPU_UNITS; unit++) {
        if (completed[unit] < taken[unit]) completed[unit]++;
        rest += completed[unit] < total[unit];
    }
    if (rest || done) return;
    done = 1;
    for (uint64_t i = 0; i < dram_size; i++) dram[i] ^= 0xff;
    fclose(told);
}

uint64_t npu_read(uint32_t address) {
    if (address == NPU_AT_CONTROL) {
        if (running) step();
        return (uint64_t)(running ? NPU_RUNNING : 0) | (uint64_t)(done ? NPU_DONE : 0);
    }
    if (address == NPU_AT_CYCLES) return 123;
    if (address == NPU_AT_STARVED) return 45;
    if (address == NPU_AT_FAULTS) return getenv("MODEL_FAULTS") ? strtoull(getenv("MODEL_FAULTS"), NULL, 0) : 0;
    for (int unit = 0; unit < NPU_UNITS; unit++) {
        if (address == (uint32_t)NPU_AT_COMPLETED(unit)) return completed[unit];
        if (address == (uint32_t)NPU_AT_FREE(unit)) return PLACES - (taken[unit] - completed[unit]);
    }
    wrong("no register is read", address);
    return 0;
}

void npu_write(uint32_t address, const uint64_t *words, size_t count) {
    for (int unit = 0; unit < NPU_UNITS; unit++) {
        if (address == (uint32_t)NPU_AT_TOTAL(unit) && count == 1 && !running) {
            total[unit] = words[0];
            return;
        }
        if (address == (uint32_t)NPU_AT_INSTRUCTION(unit) && count == WORDS) {
            if (taken[unit] - completed[unit] == PLACES) wrong("a full queue is written", address);
            if (taken[unit] == total[unit]) wrong("more than the program has is written", address);
            const uint64_t which = (uint64_t)unit;
            if (fwrite(&which, 8, 1, told) != 1 || fwrite(words, 8, WORDS, told) != WORDS) wrong("no file", address);
            taken[unit]++;
            return;
        }
    }
    if (address != NPU_AT_CONTROL || count != 1 || words[0] != NPU_START) wrong("no register is written", address);
    running = 1;
}
