// The machine of rtl/ in place of a device: what rtl/driver.c asks for. Every access of a register is a cycle.
#include "bench.h"

namespace {

std::vector<std::uint8_t> dram;
std::unique_ptr<Machine> machine;

void cycle() {
    machine->settle();
    machine->edge();
    machine->cycle++;
}

}  // namespace

extern "C" {

std::uint8_t* npu_open(const char*, const char*, std::uint64_t size) {
    dram.assign(size, 0xa5);
    machine = std::make_unique<Machine>(dram, BEAT, LATENCY, 0);
    return dram.data();
}

std::uint64_t npu_read(std::uint32_t address) {
    cycle();
    return machine->value_of(int(address));
}

// An instruction's window is gathered, and passed on as a whole.
void npu_write(std::uint32_t address, const std::uint64_t* words, std::size_t count) {
    std::vector<Word> own(words, words + count);
    machine->write(int(address), own.data(), count);
    cycle();
}

}
