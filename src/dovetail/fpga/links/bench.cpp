// Drives all boards of a system at once: host streams, and links with latency, jitter, bandwidth and faults between them.
//
// The bundle and its port table, an entry a board, are known by bundle_handle.h alone.
// usage: bench FOLDER   where FOLDER/system.txt holds one item per line:
//   run FRAMES STALL_SEED QUIET_LIMIT JITTER_CLOCKS CELL_BITS FAULT_SEED FAULT_EVERY CUT DETECT_LIMIT   (FAULT_SEED 0: none)
//   in BOARD PORT | load BOARD PORT | out BOARD PORT | status BOARD PORT | host BOARD PORT
//   (load: an input that takes weights, once after every reset; host: the status of a board the host is linked to)
//   wire BOARD OUTPUT BOARD INPUT LATENCY CELLS_PER_MILLION_CLOCKS | keep SECONDS
// Beats lie in FOLDER/inN.bin and go to FOLDER/outN.bin in the byte layout of the Verilated port; only whole frames are written.
// keep SECONDS: every so many seconds the state of everything goes to FOLDER, and a later run of the same folder goes on from
// there; `checkpoint CYCLE` is said when all that was said before belongs to it, `resumed CYCLE` where a run goes on.
// At the end `carried WIRE WORDS DATA_WORDS` is said of every wire, and `ran SECONDS` over all runs.
// FOLDER/frames.bin receives [cycles, first output cycle, last output cycle of each frame ...] as uint64.
// Half of the faults wait for a word that carries data. After one was injected, the host watches the status of the board it is
// linked to until that reports a fault; then everything is reset, and the host sends again what has not come back whole.
// With CUT a link loses all words from then on, until the reset. With a DETECT_LIMIT of 0 links repeat what was spoilt: nothing is reset, and a board that reports a fault is wrong.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "bundle_handle.h"
#include "cable.h"
#include "ports.h"
#include "stall.h"
#include "verilated.h"

namespace {

constexpr uint64_t kFillCycles = 2000;    // without a beat: then boards that nobody takes from are full
enum Exit { kDone = 0, kUsage = 2, kStuck = 10, kTooMany = 11, kReported = 14 };

// A file of numbers and bytes, written or read by the same sequence of `pass`.
class State {
public:
    State(const std::string& path, bool writes) : file_(std::fopen(path.c_str(), writes ? "wb" : "rb")), writes_(writes) {}
    ~State() {
        if (file_) std::fclose(file_);
    }
    State(const State&) = delete;
    bool close() {
        const bool closed = file_ && !std::fclose(file_);
        file_ = nullptr;
        return closed && good_;
    }
    template <typename T>
    void pass(T& value) {
        static_assert(std::is_trivially_copyable<T>::value, "bytes of it mean the same when they are read back");
        bytes(&value, sizeof value);
    }
    template <typename T>
    void pass(std::vector<T>& values) {
        uint64_t count = values.size();
        pass(count);
        values.resize(good_ ? count : 0);
        bytes(values.data(), values.size() * sizeof(T));
    }

private:
    void bytes(void* data, size_t count) {
        if (!file_ || (writes_ ? std::fwrite(data, 1, count, file_) : std::fread(data, 1, count, file_)) != count) good_ = false;
    }
    FILE* file_;
    bool writes_, good_ = true;
};

struct Run {
    uint64_t frames = 0, stall_seed = 0, quiet = 0, jitter = 0, cell_bits = 0, fault_seed = 0, fault_every = 0, cut = 0, detect = 0;
};

struct Source {
    Port port;
    Stall stall;
    std::vector<uint8_t> beats;
    bool once = false;
    uint64_t sent = 0, total = 0;
    bool offered = false;
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
    std::vector<uint8_t> beats;
    uint64_t taken = 0, total = 0;
};

class Bench {
public:
    Bench(BundleHandle& model, std::vector<Ports> boards, const std::string& folder)
        : model_(model), boards_(std::move(boards)), folder_(folder), random_(1) {}

    bool read() {
        std::ifstream file(folder_ + "/system.txt");
        std::string line;
        while (std::getline(file, line)) {
            std::istringstream fields(line);
            std::string what;
            uint64_t board = 0, port = 0;
            fields >> what;
            if (what == "keep") {
                fields >> keep_seconds_;
            } else if (what == "run") {
                fields >> run_.frames >> run_.stall_seed >> run_.quiet >> run_.jitter >> run_.cell_bits >> run_.fault_seed
                    >> run_.fault_every >> run_.cut >> run_.detect;
                filled_ = !run_.stall_seed;    // with stalls, nothing is taken at first, until every FIFO is full
                stream_ = run_.stall_seed;
                random_ = Random(run_.fault_seed + 77);
            } else {
                fields >> board >> port;
                if (!fields || board >= boards_.size()) return false;
                if (what == "in" || what == "load") add_source(boards_[board].inputs.at(port), what == "load");
                if (what == "out") add_sink(boards_[board].outputs.at(port));
                if (what == "status") statuses_.push_back(boards_[board].outputs.at(port));
                if (what == "host") hosts_.push_back(boards_[board].outputs.at(port));
                if (what == "wire") {
                    uint64_t target = 0, input = 0, latency = 0, rate = 0;
                    fields >> target >> input >> latency >> rate;
                    cables_.emplace_back(lane(boards_.at(board).outputs.at(port)), lane(boards_.at(target).inputs.at(input)), latency, rate,
                                         run_.jitter, run_.fault_seed * 31 + cables_.size() + 1);
                }
            }
            if (!fields) return false;
        }
        return !sinks_.empty();
    }

    int simulate() {
        for (Source& source : sources_) source.total = (source.once ? 1 : run_.frames) * source.port.beats;
        for (Sink& sink : sinks_) sink.total = run_.frames * sink.port.beats;
        began_ = saved_at_ = Clock::now();
        if (!keep_seconds_ || !resume()) reset();
        int code = kDone;
        while (code == kDone && !finished()) {
            code = step();
            if (keep_seconds_ && !(cycle_ & 63) && seconds_since(saved_at_) > keep_seconds_) keep();
        }
        if (code != kDone) return code;
        for (size_t i = 0; i < cables_.size(); ++i)
            std::printf("carried %zu %llu %llu\n", i, static_cast<unsigned long long>(cables_[i].carried()),
                        static_cast<unsigned long long>(cables_[i].carried_data()));
        std::printf("ran %.1f\n", ran_ + seconds_since(began_));
        for (size_t i = 0; i < sinks_.size(); ++i) write("out" + std::to_string(i), sinks_[i].beats.data(), sinks_[i].beats.size());
        std::vector<uint64_t> counts{cycle_, first_output_};
        counts.insert(counts.end(), frame_cycles_.begin(), frame_cycles_.end());
        write("frames", counts.data(), counts.size() * sizeof(uint64_t));
        return kDone;
    }

private:
    using Clock = std::chrono::steady_clock;
    static double seconds_since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

    // The state but for the boards', which the model keeps. Of faults nothing is kept: runs with them are short.
    void pass(State& state) {
        for (Source& source : sources_) {
            state.pass(source.sent);
            state.pass(source.offered);
            state.pass(source.stall);
        }
        for (Sink& sink : sinks_) {
            state.pass(sink.taken);
            state.pass(sink.beats);
            state.pass(sink.stall);
        }
        for (Cable& cable : cables_) cable.pass(state);
        state.pass(frame_cycles_);
        state.pass(filled_);
        state.pass(up_);
        state.pass(ran_);
        for (uint64_t* value : {&stream_, &cycle_, &quiet_, &first_output_}) state.pass(*value);
    }
    std::string kept(uint64_t cycle, const char* what) const { return folder_ + "/kept_" + std::to_string(cycle) + what; }

    // Two files of this cycle, then the name of both in a third, so that a run that is ended here goes on from the ones before.
    void keep() {
        std::printf("checkpoint %llu\n", static_cast<unsigned long long>(cycle_));
        std::fflush(stdout);
        ran_ += seconds_since(began_);
        began_ = Clock::now();
        State state(kept(cycle_, ".bench"), true);
        pass(state);
        const std::string name = folder_ + "/kept.txt";
        FILE* file = std::fopen((name + ".new").c_str(), "w");
        const bool named = file && std::fprintf(file, "%llu\n", static_cast<unsigned long long>(cycle_)) > 0 && !std::fclose(file);
        if (!state.close() || !named || !model_.save(kept(cycle_, ".model").c_str()) || std::rename((name + ".new").c_str(), name.c_str())) {
            std::printf("error cannot keep the state in %s\n", folder_.c_str());
            std::exit(kUsage);
        }
        for (const char* what : {".bench", ".model"}) std::remove(kept(kept_at_, what).c_str());
        kept_at_ = cycle_;
        saved_at_ = Clock::now();
    }
    bool resume() {
        std::ifstream file(folder_ + "/kept.txt");
        if (!(file >> kept_at_)) return false;
        State state(kept(kept_at_, ".bench"), false);
        pass(state);
        if (!state.close() || !model_.restore(kept(kept_at_, ".model").c_str())) {
            std::printf("error cannot go on from %s\n", folder_.c_str());
            std::exit(kUsage);
        }
        std::printf("resumed %llu\n", static_cast<unsigned long long>(cycle_));
        return true;
    }

    uint64_t seed() { return run_.stall_seed ? mix(stream_ += 0x9E3779B97F4A7C15ull) : 0; }

    static Lane lane(const Port& port) { return {port.valid, port.ready, port.data, port.bytes}; }
    void add_source(const Port& port, bool once) {
        std::ifstream file(folder_ + "/in" + std::to_string(sources_.size()) + ".bin", std::ios::binary);
        std::vector<uint8_t> beats((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
        sources_.push_back({port, Stall(seed()), beats, once});
    }
    void add_sink(const Port& port) { sinks_.push_back({port, Stall(seed()), {}}); }

    void write(const std::string& name, const void* bytes, size_t count) {
        FILE* file = std::fopen((folder_ + "/" + name + ".bin").c_str(), "wb");
        if (!file || std::fwrite(bytes, 1, count, file) != count || std::fclose(file)) {
            std::printf("error cannot write %s\n", name.c_str());
            std::exit(kUsage);
        }
    }

    void edge(int level) {
        for (Ports& board : boards_) *board.clk = static_cast<CData>(level);
        model_.eval();
    }

    // All boards forget everything; the host sends again what did not come back as a whole frame.
    void reset() {
        const uint64_t done = delivered();
        for (Source& source : sources_) {
            source.sent = source.once ? 0 : done * source.port.beats;
            source.offered = false;
            *source.port.valid = 0;
        }
        for (Sink& sink : sinks_) {
            sink.taken = done * sink.port.beats;
            sink.beats.resize(sink.taken * sink.port.bytes);
            *sink.port.ready = 0;
        }
        for (Port& status : statuses_) *status.ready = 1;
        for (Cable& cable : cables_) cable.reset();
        for (Ports& board : boards_) *board.rst = 1;
        for (int i = 0; i < 8; ++i) edge(0), edge(1);
        for (Ports& board : boards_) *board.rst = 0;
        struck_ = nullptr;
        up_ = false;
        quiet_ = 0;
        wait_ = run_.fault_every ? 1 + random_.below(2 * run_.fault_every) : 0;
    }

    uint64_t delivered() const {
        uint64_t done = run_.frames;
        for (const Sink& sink : sinks_) done = std::min(done, sink.taken / sink.port.beats);
        return done;
    }

    bool finished() const {
        for (const Source& source : sources_) if (source.sent < source.total) return false;
        for (const Sink& sink : sinks_) if (sink.taken < sink.total) return false;
        return true;
    }

    static bool bit(const Port& status, int index) { return static_cast<uint8_t*>(status.data)[0] >> index & 1; }
    bool all_up() const {
        for (const Port& status : statuses_) if (!bit(status, 1)) return false;
        return true;
    }
    bool any_reports() const {
        for (const Port& status : hosts_) if (bit(status, 0)) return true;
        return false;
    }

    int step() {
        ++cycle_;
        const bool stalls = run_.stall_seed != 0;
        for (Source& source : sources_) source.drive(filled_ && stalls);
        for (Sink& sink : sinks_) *sink.port.ready = filled_ && !sink.stall.next();
        for (Cable& cable : cables_) cable.drive(cycle_);
        edge(0);
        bool moved = false;
        for (Cable& cable : cables_) cable.look(cycle_);
        for (Source& source : sources_) {
            if (source.offered && *source.port.ready) {
                ++source.sent;
                source.offered = false;
                moved = true;
            }
        }
        for (Sink& sink : sinks_) {
            if (!*sink.port.valid || !*sink.port.ready) continue;
            if (sink.taken == sink.total) return fail(kTooMany);
            const uint8_t* const data = static_cast<const uint8_t*>(sink.port.data);
            sink.beats.insert(sink.beats.end(), data, data + sink.port.bytes);
            ++sink.taken;
            moved = true;
            if (!first_output_) first_output_ = cycle_;
        }
        const bool reported = any_reports();
        up_ = up_ || all_up();
        edge(1);
        filled_ = filled_ || quiet_ > kFillCycles;
        if (moved) note_frames();
        quiet_ = moved ? 0 : quiet_ + 1;
        if (run_.fault_seed) return watch(reported);
        if (reported) return fail(kReported);
        return quiet_ > run_.quiet && !finished() ? fail(kStuck) : kDone;
    }

    // Faults: one at a time, reported or not within the limit, then a reset.
    int watch(bool reported) {
        if (finished()) return kDone;
        if (struck_ && struck_->struck() && !run_.detect) {
            std::printf("fault %s %s 0 0\n", kDamageNames[damage_], struck_->struck_data() ? "data" : "idle");
            struck_ = nullptr;
            wait_ = 1 + random_.below(2 * run_.fault_every);
        }
        if (struck_ && struck_->struck()) {
            if (!struck_at_) struck_at_ = cycle_;
            if (!reported && cycle_ - struck_at_ < run_.detect) return kDone;
            std::printf("fault %s %s %d %llu\n", kDamageNames[damage_], struck_->struck_data() ? "data" : "idle", int(reported),
                        static_cast<unsigned long long>(cycle_ - struck_at_));
            struck_at_ = 0;
            reset();
            return kDone;
        }
        if (reported) return fail(kReported);
        if (quiet_ > run_.quiet) return fail(kStuck);
        if (up_ && !struck_ && run_.fault_every && !--wait_) {
            struck_ = &cables_[random_.below(cables_.size())];
            damage_ = run_.cut ? kCut : static_cast<Damage>(random_.below(kDamages));
            struck_->arm(damage_, run_.cell_bits, random_.below(2) ? cycle_ + 2 * run_.fault_every : 0);
        }
        return kDone;
    }

    void note_frames() {
        while (frame_cycles_.size() < delivered()) {
            frame_cycles_.push_back(cycle_);
            std::printf("frame %zu\n", frame_cycles_.size());
            std::fflush(stdout);
        }
    }

    int fail(Exit code) {
        std::printf("failed %llu|", static_cast<unsigned long long>(cycle_));
        for (const Source& source : sources_) count(source.port.name, source.sent, source.total);
        std::printf("|");
        for (const Sink& sink : sinks_) count(sink.port.name, sink.taken, sink.total);
        std::printf("|");
        for (const Port& status : statuses_) {
            uint64_t value = 0;
            std::memcpy(&value, status.data, std::min(status.bytes, sizeof value));
            std::printf(" %llx", static_cast<unsigned long long>(value));
        }
        std::printf("\n");
        return code;
    }
    static void count(const char* name, uint64_t done, uint64_t total) {
        std::printf(" %s %llu of %llu", name, static_cast<unsigned long long>(done), static_cast<unsigned long long>(total));
    }

    BundleHandle& model_;
    std::vector<Ports> boards_;
    std::string folder_;
    Random random_;
    Run run_;
    uint64_t stream_ = 0;
    std::vector<Source> sources_;
    std::vector<Sink> sinks_;
    std::vector<Port> statuses_, hosts_;
    std::deque<Cable> cables_;
    std::vector<uint64_t> frame_cycles_;
    Cable* struck_ = nullptr;
    Damage damage_ = kLost;
    bool filled_ = false, up_ = false;
    double keep_seconds_ = 0, ran_ = 0;
    Clock::time_point began_, saved_at_;
    uint64_t kept_at_ = 0, cycle_ = 0, quiet_ = 0, first_output_ = 0, wait_ = 0, struck_at_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
    if (count != 2) return kUsage;
    VerilatedContext context;
    context.randReset(2);    // registers without a reset start at reproducible random values
    context.randSeed(1);
    BundleHandle model(context);
    Bench bench(model, model.describe(), arguments[1]);
    if (!bench.read()) return kUsage;
    const int code = bench.simulate();
    if (code == kDone) model.final();
    return code;
}
