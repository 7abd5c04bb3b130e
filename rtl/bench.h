// The machine with a clock and a DRAM, for Verilator: what a host needs to write its registers and to read them.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "Vnpu.h"
#include "registers.h"
#include "verilated.h"

using Word = std::uint64_t;

// A port of up to 64 bits is a number, a wider one an array of words of 32 bits.
template <typename Number>
std::uint8_t byte_of(const Number& port, std::size_t i) { return std::uint8_t(port >> 8 * i); }
template <std::size_t N>
std::uint8_t byte_of(const VlWide<N>& port, std::size_t i) { return std::uint8_t(port.at(i / 4) >> 8 * (i % 4)); }
template <typename Number>
bool bit_of(const Number& port, std::size_t i) { return port >> i & 1; }
template <std::size_t N>
bool bit_of(const VlWide<N>& port, std::size_t i) { return port.at(i / 32) >> (i % 32) & 1; }
template <typename Number>
void set_bytes(Number& port, const std::uint8_t* bytes, std::size_t size) {
    Word value = 0;
    for (std::size_t i = 0; i < size; i++) value |= Word(bytes[i]) << 8 * i;
    port = Number(value);
}
template <std::size_t N>
void set_bytes(VlWide<N>& port, const std::uint8_t* bytes, std::size_t size) {
    for (std::size_t i = 0; i < size; i += 4) {
        std::uint32_t value = 0;
        for (std::size_t j = 0; j < 4; j++) value |= std::uint32_t(bytes[i + j]) << 8 * j;
        port.at(i / 4) = value;
    }
}

// DRAM answers a request `latency` cycles later, in the same one when that is 0; with jitter, a seed, up to 20 cycles
// later, and it is not always ready.
class Machine {
public:
    std::unique_ptr<VerilatedContext> context = std::make_unique<VerilatedContext>();
    std::unique_ptr<Vnpu> npu;
    std::vector<std::uint8_t>& dram;
    Word cycle = 0, outside = 0;  // the latter: requests outside of DRAM

    Machine(std::vector<std::uint8_t>& dram, Word beat, Word latency, Word jitter)
        : dram(dram), beat(beat), latency(latency), jitter(jitter), random(jitter) {
        context->randReset(2);  // registers begin with anything: nothing may rely on zeros
        context->randSeed(int(jitter) + 1);
        npu = std::make_unique<Vnpu>(context.get());
        npu->reset = 1;
        npu->host_write = 0;
        npu->request_ready = 1;
        for (int i = 0; i < 2; i++) clock();
        npu->reset = 0;
    }

    // A cycle without DRAM, which nobody asks before the start.
    void clock() {
        npu->clk = 0;
        npu->eval();
        edge();
    }

    // What comes in is set, and what follows from it without a clock.
    void settle() {
        npu->clk = 0;
        serve();
        npu->eval();
        if (npu->response && npu->response_ready) responses.pop_front();
    }

    void edge() {
        npu->clk = 1;
        npu->eval();
        npu->host_write = 0;
    }

    // In the cycle that comes.
    void write(int address, const Word* words, Word count) {
        npu->host_write = 1;
        npu->host_address = address;
        for (Word i = 0; i < 8; i++) {
            const Word word = i < count ? words[i] : 0;
            npu->host_data.at(2 * i) = std::uint32_t(word);
            npu->host_data.at(2 * i + 1) = std::uint32_t(word >> 32);
        }
    }

    Word value_of(int address) {
        npu->host_write = 0;
        npu->host_address = address;
        npu->eval();
        return npu->host_value;
    }

private:
    const Word beat, latency, jitter;
    std::mt19937_64 random;
    struct Response {
        Word due;
        std::vector<std::uint8_t> data;
    };
    std::deque<Response> responses;

    void serve() {
        npu->request_ready = !(jitter && random() % 8 == 0);
        if (npu->request) {
            const Word at = npu->request_address;
            const bool good = at + beat <= dram.size();
            outside += !good;
            if (npu->request_write) {
                for (Word i = 0; good && i < beat; i++)
                    if (bit_of(npu->request_bytes, i)) dram[at + i] = byte_of(npu->request_data, i);
            } else {
                Word due = cycle + latency + (jitter ? random() % 20 : 0);
                if (!responses.empty() && responses.back().due >= due) due = responses.back().due + 1;
                std::vector<std::uint8_t> data(beat);
                for (Word i = 0; good && i < beat; i++) data[i] = dram[at + i];
                responses.push_back({due, std::move(data)});
            }
        }
        npu->response = !responses.empty() && responses.front().due <= cycle;
        if (npu->response) set_bytes(npu->response_data, responses.front().data.data(), beat);
    }
};
