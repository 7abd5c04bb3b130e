// The registers of the host port. Written by glenside.npu.isa.host_registers.in_c(): do not edit.
#pragma once

#define NPU_DMA 0
#define NPU_LOAD 1
#define NPU_STREAM 2
#define NPU_STORE 3
#define NPU_UNITS 4
#define NPU_SIZE 0x300
#define NPU_WINDOW 64
// write 1: start. Read: bit 0 running, bit 1 done
#define NPU_AT_CONTROL 0x000
// cycles from the start until everything was completed
#define NPU_AT_CYCLES 0x008
// cycles in which a queue was empty that should not be: the host was late
#define NPU_AT_STARVED 0x010
// faults since the start: from bit 0 on two readers at one port of a lane's bank, two writers at one port of a
// lane's bank, a lane's address outside, two users of one port of the accumulators, an accumulator outside, a row
// of weights outside, a row of parameters outside, a table outside, a function outside
#define NPU_AT_FAULTS 0x018
// how many instructions of unit u the program has (dma, load, stream, store)
#define NPU_AT_TOTAL(unit) (0x040 + 8 * (unit))
// how many it has completed
#define NPU_AT_COMPLETED(unit) (0x080 + 8 * (unit))
// how many more its queue holds
#define NPU_AT_FREE(unit) (0x0c0 + 8 * (unit))
// the next instruction of unit u, which goes to its queue
#define NPU_AT_INSTRUCTION(unit) (0x200 + 64 * (unit))
#define NPU_UNIT_NAMES {"dma", "load", "stream", "store"}
#define NPU_START 1
#define NPU_RUNNING 1
#define NPU_DONE 2
// Of the bits of faults, from the lowest on.
#define NPU_FAULTS \
    "two readers at one port of a lane's bank", \
    "two writers at one port of a lane's bank", \
    "a lane's address outside", \
    "two users of one port of the accumulators", \
    "an accumulator outside", \
    "a row of weights outside", \
    "a row of parameters outside", \
    "a table outside", \
    "a function outside"
