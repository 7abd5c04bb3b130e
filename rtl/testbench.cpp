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
#include <vector>

#include "bench.h"

namespace {

constexpr int UNITS = NPU_UNITS;

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
    explicit Bench(Job& job) : job(job), machine(job.dram, job.beat, job.latency, job.jitter) {}

    bool run(const char* path) {
        start();
        bool ended = false;
        for (Word& cycle = machine.cycle; !ended && cycle < job.most; cycle++) {
            refill();
            machine.settle();
            for (int u = 0; u < UNITS; u++)
                if (machine.npu->completions >> u & 1) completed[u].push_back(cycle + 1);
            ended = machine.npu->done;
            machine.edge();
        }
        const Word found[] = {Word(!ended), machine.value_of(NPU_AT_CYCLES), machine.value_of(NPU_AT_STARVED),
                              machine.value_of(NPU_AT_FAULTS), machine.outside};
        return save(path, found);
    }

private:
    Job& job;
    Machine machine;
    std::vector<Word> completed[UNITS];
    Word pushed[UNITS] = {}, room[UNITS] = {};
    int unit = 0;

    // The next instruction of a unit.
    void push(int u) {
        machine.write(NPU_AT_INSTRUCTION(u), &job.queue[u][pushed[u] * job.words[u]], job.words[u]);
        pushed[u]++;
    }

    void start() {
        for (int u = 0; u < UNITS; u++) {
            machine.write(NPU_AT_TOTAL(u), &job.count[u], 1);
            machine.clock();
            const Word places = machine.value_of(NPU_AT_FREE(u));
            while (pushed[u] < places && pushed[u] < job.count[u]) {
                push(u);
                machine.clock();
            }
        }
        const Word one = 1;
        machine.write(NPU_AT_CONTROL, &one, 1);
        machine.clock();
    }

    // An instruction a cycle to the queues that have room, in turn; where none is known to, it looks.
    void refill() {
        for (int i = 0; i < UNITS; i++) {
            const int own = unit;
            unit = (unit + 1) % UNITS;
            if (pushed[own] == job.count[own]) continue;
            if (room[own] == 0) room[own] = machine.value_of(NPU_AT_FREE(own));
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
