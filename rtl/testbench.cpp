// What stands around the machine: a clock, a DRAM, and a host that fills queues as they empty.
//
//   npu JOB RESULT
//
// JOB is little-endian words of 64 bits: bytes of a beat, latency, seed of jitter (0: none), most cycles, bytes of
// DRAM; of each unit (dma, load, stream, store) the words of an instruction and how many instructions; then all their
// words, unit by unit; then DRAM's bytes. RESULT: 0 or 1 (it did not end), cycles, starved, faults, reads and writes
// outside of DRAM; of each unit how many instructions completed and the cycle of each; then DRAM's bytes.
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "Vnpu.h"
#include "registers.h"
#include "verilated.h"

namespace {

constexpr int UNITS = NPU_UNITS;
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

struct Job {
    Word beat, latency, jitter, most;
    Word words[UNITS], count[UNITS];
    std::vector<Word> queue[UNITS];
    std::vector<std::uint8_t> dram;
};

bool read_job(const char* path, Job& job) {
    std::FILE* file = std::fopen(path, "rb");
    if (!file) return false;
    Word size = 0;
    auto words = [&](Word* into, std::size_t n) { return std::fread(into, sizeof(Word), n, file) == n; };
    bool good = words(&job.beat, 1) && words(&job.latency, 1) && words(&job.jitter, 1) && words(&job.most, 1) &&
                words(&size, 1);
    for (int u = 0; good && u < UNITS; u++) good = words(&job.words[u], 1) && words(&job.count[u], 1);
    for (int u = 0; good && u < UNITS; u++) {
        job.queue[u].resize(job.words[u] * job.count[u]);
        good = words(job.queue[u].data(), job.queue[u].size());
    }
    if (good) {
        job.dram.resize(size);
        good = std::fread(job.dram.data(), 1, size, file) == size;
    }
    std::fclose(file);
    return good;
}

class Bench {
public:
    explicit Bench(Job& job) : job(job), random(job.jitter) {
        context->randReset(2);  // registers begin with anything: nothing may rely on zeros
        context->randSeed(int(job.jitter) + 1);
        npu = std::make_unique<Vnpu>(context.get());
    }

    bool run(const char* path) {
        start();
        bool ended = false;
        for (cycle = 0; !ended && cycle < job.most; cycle++) {
            refill();
            settle();
            for (int u = 0; u < UNITS; u++)
                if (npu->completions >> u & 1) completed[u].push_back(cycle + 1);
            ended = npu->done;
            edge();
        }
        const Word found[] = {Word(!ended), value_of(NPU_AT_CYCLES), value_of(NPU_AT_STARVED), value_of(NPU_AT_FAULTS), outside};
        return save(path, found);
    }

private:
    Job& job;
    std::mt19937_64 random;
    std::unique_ptr<VerilatedContext> context = std::make_unique<VerilatedContext>();
    std::unique_ptr<Vnpu> npu;
    Word cycle = 0, outside = 0;
    std::vector<Word> completed[UNITS];
    struct Response {
        Word due;
        std::vector<std::uint8_t> data;
    };
    std::deque<Response> responses;
    Word pushed[UNITS] = {}, room[UNITS] = {};
    int unit = 0;

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

    // The memory port: a request is answered `latency` cycles later, in the same one when that is 0; with jitter up
    // to 20 cycles later, and it is not always ready.
    void serve() {
        npu->request_ready = !(job.jitter && random() % 8 == 0);
        if (npu->request) {
            const Word at = npu->request_address;
            const bool good = at + job.beat <= job.dram.size();
            outside += !good;
            if (npu->request_write) {
                for (Word i = 0; good && i < job.beat; i++)
                    if (bit_of(npu->request_bytes, i)) job.dram[at + i] = byte_of(npu->request_data, i);
            } else {
                Word due = cycle + job.latency + (job.jitter ? random() % 20 : 0);
                if (!responses.empty() && responses.back().due >= due) due = responses.back().due + 1;
                std::vector<std::uint8_t> data(job.beat);
                for (Word i = 0; good && i < job.beat; i++) data[i] = job.dram[at + i];
                responses.push_back({due, std::move(data)});
            }
        }
        npu->response = !responses.empty() && responses.front().due <= cycle;
        if (npu->response) set_bytes(npu->response_data, responses.front().data.data(), job.beat);
    }

    void write(int address, const Word* words, Word count) {
        npu->host_write = 1;
        npu->host_address = address;
        for (Word i = 0; i < 8; i++) {
            const Word word = i < count ? words[i] : 0;
            npu->host_data.at(2 * i) = std::uint32_t(word);
            npu->host_data.at(2 * i + 1) = std::uint32_t(word >> 32);
        }
    }

    // The next instruction of a unit.
    void push(int u) {
        write(NPU_AT_INSTRUCTION(u), &job.queue[u][pushed[u] * job.words[u]], job.words[u]);
        pushed[u]++;
    }

    Word value_of(int address) {
        npu->host_write = 0;
        npu->host_address = address;
        npu->eval();
        return npu->host_value;
    }

    void start() {
        npu->reset = 1;
        npu->host_write = 0;
        npu->request_ready = 1;
        for (int i = 0; i < 2; i++) {
            npu->clk = 0;
            npu->eval();
            edge();
        }
        npu->reset = 0;
        auto clock = [&] {
            npu->clk = 0;
            npu->eval();
            edge();
        };
        for (int u = 0; u < UNITS; u++) {
            write(NPU_AT_TOTAL(u), &job.count[u], 1);
            clock();
            const Word places = value_of(NPU_AT_FREE(u));
            while (pushed[u] < places && pushed[u] < job.count[u]) {
                push(u);
                clock();
            }
        }
        const Word one = 1;
        write(NPU_AT_CONTROL, &one, 1);
        clock();
    }

    // An instruction a cycle to the queues that have room, in turn; where none is known to, it looks.
    void refill() {
        for (int i = 0; i < UNITS; i++) {
            const int own = unit;
            unit = (unit + 1) % UNITS;
            if (pushed[own] == job.count[own]) continue;
            if (room[own] == 0) room[own] = value_of(NPU_AT_FREE(own));
            if (room[own] == 0) continue;
            room[own]--;
            push(own);
            return;
        }
    }

    bool save(const char* path, const Word (&found)[5]) {
        std::FILE* file = std::fopen(path, "wb");
        if (!file) return false;
        auto words = [&](const Word* from, std::size_t n) { return std::fwrite(from, sizeof(Word), n, file) == n; };
        bool good = words(found, 5);
        for (auto& own : completed) {
            const Word count = own.size();
            good = good && words(&count, 1) && words(own.data(), own.size());
        }
        good = good && std::fwrite(job.dram.data(), 1, job.dram.size(), file) == job.dram.size();
        return std::fclose(file) == 0 && good;
    }
};

}  // namespace

int main(int argc, char** argv) {
    Job job;
    if (argc != 3 || !read_job(argv[1], job)) return 2;
    return Bench(job).run(argv[2]) ? 0 : 3;
}
