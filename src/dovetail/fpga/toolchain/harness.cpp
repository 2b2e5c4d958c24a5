// Drives every design of a Verilator bundle through its valid/ready streams, one design after another.
//
// The bundle and its port table are known by bundle_handle.h alone.
// usage: harness FOLDER   where FOLDER/jobs.txt holds one line per run:
//   design frames stall_seed stall_limit drain      (stall_seed 0: never stall)
// Beats lie in FOLDER/RUN_inPORT.bin and go to FOLDER/RUN_outPORT.bin, in the byte layout of the Verilated port;
// FOLDER/RUN_frames.bin receives [cycles, first output cycle, last output cycle of each frame ...] as uint64.
// Cycle 1 is the first rising edge after reset.
//
// usage: harness FOLDER INPUT STALL_LIMIT DRAIN   for frames that come while others are under way, through the only design of the bundle:
// FOLDER/jobs.txt is a pipe; each line is the number of a frame, whose beats lie in FOLDER/NUMBER_inPORT.bin. When its last beat
// has left, they are in FOLDER/NUMBER_outPORT.bin, and `frame NUMBER FIRST LAST FOLLOWED` is said: the cycles of its first beat
// through INPUT and of its last beat out, and whether it was there before the frame ahead of it had entered. The clock stands
// while there is no frame, DRAIN cycles after the last one.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "bundle_handle.h"
#include "ports.h"
#include "stall.h"
#include "verilated.h"
#if VM_COVERAGE
#include "verilated_cov.h"
#endif

namespace {

constexpr uint64_t kFillCycles = 2000;    // without a beat: then a design that nobody takes from is full

constexpr size_t kWriteBytes = 1 << 16;
constexpr uint64_t kListenCycles = 64;    // between two looks for more frames

enum Exit { kDone = 0, kUsage = 2, kStuck = 10, kTooMany = 11, kUnstable = 12 };

struct Run {
    unsigned design = 0;
    uint64_t frames = 0, stall_seed = 0, stall_limit = 0, drain = 0;
};

struct Source {
    Port port;
    Stall stall;
    std::vector<uint8_t> beats;
    uint64_t sent = 0, total = 0;
    bool offered = false;    // a valid beat stays offered until it is taken

    void drive(bool stalls) {
        if (!offered && sent < total && !(stalls && stall.next())) {
            std::memcpy(port.data, beats.data() + sent * port.bytes, port.bytes);
            offered = true;
        }
        *port.valid = offered;
    }
};

struct Sink {
    Port port;
    Stall stall;
    FILE* file = nullptr;
    std::vector<uint8_t> held;
    uint64_t taken = 0, total = 0;
    bool waiting = false;    // the last cycle showed a beat that was not taken
    std::vector<uint8_t> beats;    // taken and not yet written: a library call per beat costs as much as a small design

    void keep() {
        const uint8_t* const data = static_cast<const uint8_t*>(port.data);
        beats.insert(beats.end(), data, data + port.bytes);
        if (file && beats.size() >= kWriteBytes) write();
    }
    void write() {
        std::fwrite(beats.data(), 1, beats.size(), file);
        beats.clear();
    }
};

std::vector<uint8_t> read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file) {
        std::printf("error cannot read %s\n", path.c_str());
        std::exit(kUsage);
    }
    std::vector<uint8_t> bytes(static_cast<size_t>(file.tellg()));
    file.seekg(0);
    file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return bytes;
}

[[noreturn]] void cannot_write() {
    std::printf("error cannot write results: %s\n", std::strerror(errno));
    std::exit(kUsage);
}

FILE* create_file(const std::string& path) {
    FILE* file = std::fopen(path.c_str(), "wb");
    if (!file) cannot_write();
    return file;
}

// A full disk shows at the latest when the last buffered beats are written.
void close_file(FILE* file) {
    const bool broken = std::ferror(file);
    if (std::fclose(file) || broken) cannot_write();
}

// Memory behind a port: bursts in the order of their requests, each a fixed time after its request, at a fixed rate for both ways.
class Dram {
public:
    Dram(const MemoryPort& port, Stall stall) : port_(port), stall_(stall) {
        std::ifstream file(port.image);
        std::string line;
        while (std::getline(file, line)) {
            std::vector<uint8_t> beat(port.bytes, 0);
            for (size_t i = 0; i < port.beat_bytes; ++i)
                beat[i] = static_cast<uint8_t>(std::stoul(line.substr(2 * (port.beat_bytes - 1 - i), 2), nullptr, 16));
            image_.insert(image_.end(), beat.begin(), beat.end());
        }
        if (image_.empty()) {
            std::printf("error cannot read %s\n", port.image);
            std::exit(kUsage);
        }
        image_.resize(std::max<size_t>(image_.size(), port.size * port.bytes));
    }
    void drive(uint64_t cycle) {
        *port_.request_ready = !stall_.next();
        if (credit_ < 16 * port_.beat_bytes) credit_ += port_.sixteenths;
        const bool serves = !bursts_.empty() && credit_ >= 16 * port_.beat_bytes && !stall_.next();
        const bool writes = serves && bursts_.front().write;
        if (port_.written) {
            *port_.write_ready = writes;
            *port_.written = !written_.empty() && written_.front() <= cycle;
            if (*port_.written) written_.pop_front();
        }
        *port_.valid = serves && !writes && bursts_.front().from <= cycle ? port_.parts : 0;
        if (*port_.valid) std::memcpy(port_.data, beat(), port_.bytes), advance();
    }
    void look(uint64_t cycle) {
        if (port_.written && *port_.write_valid && *port_.write_ready) {
            std::memcpy(beat(), port_.write_data, port_.bytes);
            if (advance()) written_.push_back(cycle + port_.latency);
        }
        if (*port_.request_valid && *port_.request_ready)
            bursts_.push_back({*port_.address, *port_.beats, cycle + port_.latency, port_.written && *port_.request_write});
    }
    void rest() {
        *port_.request_ready = *port_.valid = 0;
        if (port_.written) *port_.write_ready = *port_.written = 0;
    }

private:
    struct Burst {
        uint64_t address, beats, from;
        bool write;
    };
    uint8_t* beat() { return image_.data() + bursts_.front().address % (image_.size() / port_.bytes) * port_.bytes; }
    bool advance() {    // whether this was the burst's last beat
        Burst& burst = bursts_.front();
        credit_ -= 16 * port_.beat_bytes;
        ++burst.address;
        if (--burst.beats) return false;
        bursts_.pop_front();
        return true;
    }
    MemoryPort port_;
    Stall stall_;
    std::vector<uint8_t> image_;
    std::deque<Burst> bursts_;
    std::deque<uint64_t> written_;    // when bursts may be read again
    uint64_t credit_ = 0;
};

class Simulator {
public:
    Simulator(BundleHandle& model, const Ports& ports, const std::string& folder, size_t lead, uint64_t stall_limit,
              uint64_t drain)
        : model_(model), ports_(ports), run_{0, 0, 0, stall_limit, drain}, prefix_(folder), lead_(lead) {
        for (const Port& port : ports.inputs) sources_.push_back({port, Stall(0)});
        for (const Port& port : ports.outputs) {
            sinks_.push_back({port, Stall(0)});
            sinks_.back().held.resize(port.bytes);
        }
        for (const MemoryPort& port : ports.memories) memories_.emplace_back(port, Stall(0));
    }

    // Clock the design while frames are under way, until the pipe is closed.
    int serve(int jobs) {
        reset();
        std::string text;
        for (uint64_t drained = 0;; ++drained) {
            if (!finished()) drained = 0;
            const bool idle = drained >= run_.drain || (finished() && !cycle_);
            if (idle || cycle_ % kListenCycles == 0) {
                pollfd waiting{jobs, POLLIN, 0};
                if (poll(&waiting, 1, idle ? -1 : 0) > 0) {
                    char octets[512];
                    const ssize_t got = read(jobs, octets, sizeof octets);
                    if (got <= 0) return kDone;
                    text.append(octets, static_cast<size_t>(got));
                    for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1))
                        add(std::stoull(text.substr(0, end)));
                }
                if (idle) continue;
            }
            const int code = step();
            if (code != kDone) return code;
            deliver();
        }
    }

    Simulator(BundleHandle& model, const Ports& ports, const Run& run, const std::string& prefix)
        : model_(model), ports_(ports), run_(run), prefix_(prefix) {
        uint64_t stream = run.stall_seed;
        auto seed = [&] { return run.stall_seed ? mix(stream += 0x9E3779B97F4A7C15ull) : 0; };
        for (size_t i = 0; i < ports.inputs.size(); ++i) {
            sources_.push_back({ports.inputs[i], Stall(seed()), read_file(prefix + "_in" + std::to_string(i) + ".bin")});
            sources_.back().total = sources_.back().beats.size() / ports.inputs[i].bytes;
        }
        for (size_t i = 0; i < ports.outputs.size(); ++i) {
            sinks_.push_back({ports.outputs[i], Stall(seed())});
            sinks_.back().file = create_file(prefix + "_out" + std::to_string(i) + ".bin");
            sinks_.back().held.resize(ports.outputs[i].bytes);
            sinks_.back().total = run.frames * ports.outputs[i].beats;
        }
        for (const MemoryPort& port : ports.memories) memories_.emplace_back(port, Stall(seed()));
    }

    int simulate() {
        reset();
        int code = kDone;
        while (code == kDone && !finished()) code = step();
        const uint64_t cycles = cycle_;
        for (uint64_t i = 0; code == kDone && i < run_.drain; ++i) code = step();
        for (Sink& sink : sinks_) {
            sink.write();
            close_file(sink.file);
        }
        FILE* file = create_file(prefix_ + "_frames.bin");
        std::fwrite(&cycles, sizeof cycles, 1, file);
        std::fwrite(&first_output_, sizeof first_output_, 1, file);
        std::fwrite(frame_cycles_.data(), sizeof(uint64_t), frame_cycles_.size(), file);
        close_file(file);
        return code;
    }

private:
    struct Passing {
        uint64_t number, first;
        bool followed;
    };

    void add(uint64_t number) {
        const bool followed = std::any_of(sources_.begin(), sources_.end(), [](const Source& s) { return s.sent < s.total; });
        for (size_t i = 0; i < sources_.size(); ++i) {
            Source& source = sources_[i];
            source.beats.erase(source.beats.begin(), source.beats.begin() + static_cast<ptrdiff_t>(source.sent * source.port.bytes));
            source.total -= source.sent;
            source.sent = 0;
            const std::vector<uint8_t> more = read_file(prefix_ + "/" + std::to_string(number) + "_in" + std::to_string(i) + ".bin");
            source.beats.insert(source.beats.end(), more.begin(), more.end());
            source.total += more.size() / source.port.bytes;
        }
        for (Sink& sink : sinks_) sink.total += sink.port.beats;
        passing_.push_back({number, 0, followed});
        quiet_ = 0;
    }

    void deliver() {
        while (!passing_.empty()) {
            for (const Sink& sink : sinks_) if (sink.beats.size() < sink.port.beats * sink.port.bytes) return;
            const Passing frame = passing_.front();
            passing_.pop_front();
            ++delivered_;
            for (size_t i = 0; i < sinks_.size(); ++i) {
                Sink& sink = sinks_[i];
                const size_t size = sink.port.beats * sink.port.bytes;
                FILE* file = create_file(prefix_ + "/" + std::to_string(frame.number) + "_out" + std::to_string(i) + ".bin");
                std::fwrite(sink.beats.data(), 1, size, file);
                close_file(file);
                sink.beats.erase(sink.beats.begin(), sink.beats.begin() + static_cast<ptrdiff_t>(size));
            }
            std::printf("frame %llu %llu %llu %d\n", static_cast<unsigned long long>(frame.number),
                        static_cast<unsigned long long>(frame.first), static_cast<unsigned long long>(cycle_), frame.followed);
            std::fflush(stdout);
        }
    }

    void reset() {
        *ports_.rst = 1;
        for (Source& source : sources_) *source.port.valid = 0;
        for (Sink& sink : sinks_) *sink.port.ready = 0;
        for (Dram& memory : memories_) memory.rest();
        for (int i = 0; i < 8; ++i) edge();
        *ports_.rst = 0;
    }

    void edge() {
        *ports_.clk = 0;
        model_.eval();
        *ports_.clk = 1;
        model_.eval();
    }

    bool finished() const {
        for (const Source& source : sources_) if (source.sent < source.total) return false;
        for (const Sink& sink : sinks_) if (sink.taken < sink.total) return false;
        return true;
    }

    // One clock cycle: drive, settle, look at the handshakes, clock.
    int step() {
        ++cycle_;
        for (Source& source : sources_) source.drive(filled_);
        for (Sink& sink : sinks_) *sink.port.ready = filled_ && !sink.stall.next();
        for (Dram& memory : memories_) memory.drive(cycle_);
        *ports_.clk = 0;
        model_.eval();
        bool moved = false;
        for (Dram& memory : memories_) memory.look(cycle_);
        for (Source& source : sources_) {
            if (source.offered && *source.port.ready) {
                ++source.sent;
                if (!passing_.empty() && &source == &sources_[lead_] && lead_sent_++ % source.port.beats == 0)
                    passing_[(lead_sent_ - 1) / source.port.beats - delivered_].first = cycle_;
                source.offered = false;
                moved = true;
            }
        }
        for (Sink& sink : sinks_) {
            const int code = look(sink, moved);
            if (code != kDone) return code;
        }
        *ports_.clk = 1;
        model_.eval();
        filled_ = filled_ || quiet_ > kFillCycles;
        if (moved) {
            quiet_ = 0;
            note_frames();
        } else if (++quiet_ > run_.stall_limit && !finished()) {
            return fail(kStuck, "no beat moved");
        }
        return kDone;
    }

    int look(Sink& sink, bool& moved) {
        const Port& port = sink.port;
        if (sink.waiting && (!*port.valid || std::memcmp(port.data, sink.held.data(), port.bytes)))
            return fail(kUnstable, port.name);
        sink.waiting = false;
        if (!*port.valid) return kDone;
        if (!*port.ready) {
            std::memcpy(sink.held.data(), port.data, port.bytes);
            sink.waiting = true;
            return kDone;
        }
        if (sink.taken == sink.total) return fail(kTooMany, port.name);
        sink.keep();
        if (!first_output_) first_output_ = cycle_;
        ++sink.taken;
        moved = true;
        return kDone;
    }

    void note_frames() {
        while (frame_cycles_.size() < run_.frames) {
            for (const Sink& sink : sinks_) if (sink.taken < (frame_cycles_.size() + 1) * sink.port.beats) return;
            frame_cycles_.push_back(cycle_);
            std::printf("frame %zu\n", frame_cycles_.size());
            std::fflush(stdout);
        }
    }

    int fail(Exit code, const char* what) {
        std::printf("failed %u %llu %s|", run_.design, static_cast<unsigned long long>(cycle_), what);
        for (const Source& source : sources_) count(source.port.name, source.sent, source.total);
        std::printf("|");
        for (const Sink& sink : sinks_) count(sink.port.name, sink.taken, sink.total);
        std::printf("\n");
        return code;
    }

    static void count(const char* name, uint64_t done, uint64_t total) {
        std::printf(" %s %llu of %llu", name, static_cast<unsigned long long>(done), static_cast<unsigned long long>(total));
    }

    BundleHandle& model_;
    const Ports& ports_;
    Run run_;
    std::string prefix_;
    bool filled_ = !run_.stall_seed;    // with stalls, nothing is taken at first, until every FIFO is full
    std::vector<Source> sources_;
    std::vector<Sink> sinks_;
    std::vector<Dram> memories_;
    std::vector<uint64_t> frame_cycles_;
    uint64_t cycle_ = 0, quiet_ = 0, first_output_ = 0;
    std::deque<Passing> passing_;    // frames under way, where they come one by one
    size_t lead_ = 0;
    uint64_t lead_sent_ = 0, delivered_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
    if (count != 2 && count != 5) return kUsage;
    const std::string folder = arguments[1];
    VerilatedContext context;
    context.randReset(2);    // registers without a reset start at reproducible random values
    context.randSeed(1);
    BundleHandle model(context);
    const std::vector<Ports> designs = model.describe();
    for (const Ports& ports : designs) *ports.rst = 1;
    if (count == 5) {
        const int pipe = open((folder + "/jobs.txt").c_str(), O_RDONLY);
        if (pipe < 0) return kUsage;
        return Simulator(model, designs[0], folder, std::stoull(arguments[2]), std::stoull(arguments[3]), std::stoull(arguments[4]))
            .serve(pipe);
    }
    std::ifstream jobs(folder + "/jobs.txt");
    std::string line;
    for (unsigned index = 0; std::getline(jobs, line); ++index) {
        std::istringstream fields(line);
        Run run;
        fields >> run.design >> run.frames >> run.stall_seed >> run.stall_limit >> run.drain;
        if (!fields || run.design >= designs.size()) return kUsage;
        std::printf("run %u\n", index);
        const int code = Simulator(model, designs[run.design], run, folder + "/" + std::to_string(index)).simulate();
        if (code != kDone) return code;
    }
    model.final();
#if VM_COVERAGE
    context.coveragep()->write((folder + "/coverage.dat").c_str());
#endif
    return kDone;
}
