// Shells as a shared library: a host's view of a board, or of boards joined by links, with AXI4-Lite reads and writes and a DMA channel per stream.
//
// The bundle and its port table are known by bundle_handle.h alone. Words a host sends wait
// in queues and move whenever the clock runs, also during register accesses. Nothing here prints or ends the process.
#include <unistd.h>

#include <climits>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "axi_memory.h"
#include "axi_ports.h"
#include "bundle_handle.h"
#include "cable.h"
#include "stall.h"
#include "verilated.h"
#if VM_TRACE_FST
#include "verilated_fst_c.h"
#endif


namespace {

enum Answer { kReached = 0, kOutOfCycles = 1, kUnstable = 2, kViolation = 3, kNoAnswer = -1 };
constexpr int kAnswerCycles = 1000;    // a register access that takes longer is lost

struct Source {
    Port port;
    Stall stall;
    std::vector<uint8_t> words, last;
    size_t sent = 0;
    uint64_t refused = 0;      // cycles in which a word was offered and not taken
    bool offered = false;
};
struct Packet {
    uint64_t words;
    unsigned kept_bytes;    // of the last word
    bool aborted;
};
struct Sink {
    Port port;
    Stall stall;
    std::vector<uint8_t> words, held;
    size_t taken_bytes = 0;    // already fetched by the host
    uint64_t open_words = 0;   // of the packet that is coming in
    uint64_t refused = 0;      // cycles in which a word was there and not taken
    std::deque<Packet> packets;
    bool waiting = false;
};

struct Board {
    Ports ports;
    std::vector<Source> sources;
    std::vector<Sink> sinks;
    std::vector<AxiMemory> memories;
};
constexpr unsigned kAllDesigns = ~0u;

// One design of the bundle, or all of them on one clock, joined by links; calls are for the board that was chosen last.
class Model {
public:
    Model(unsigned design, uint64_t seed, const char* trace) : model_(context_) {
        context_.randReset(2);
        context_.randSeed(1);
        const std::vector<Ports> all = model_.describe();
        for (const Ports& ports : all) *ports.rst = 1;
        if (design != kAllDesigns) all.at(design);    // throws where there is none
        for (size_t i = 0; i < all.size(); ++i) {
            if (design != kAllDesigns && design != i) continue;
            boards_.emplace_back();
            Board& board = boards_.back();
            board.ports = all[i];
            for (const Port& port : board.ports.inputs) board.sources.push_back({port, Stall(0)});
            for (const Port& port : board.ports.outputs) board.sinks.push_back({port, Stall(0)});
            for (Sink& sink : board.sinks) sink.held.resize(board.ports.bytes);
            const auto content = std::make_shared<std::vector<uint8_t>>();
            for (const AxiPins& pins : board.ports.memories) board.memories.emplace_back(pins, content);
        }
        choose(0);
#if VM_TRACE_FST
        if (trace) {
            context_.traceEverOn(true);
            trace_.reset(new VerilatedFstC);
            model_.trace(trace_.get());
            trace_->open(trace);
        }
#else
        (void)trace;
#endif
        stall(seed);
        for (int i = 0; i < 8; ++i) step();
        for (Board& board : boards_) *board.ports.rst = 0;
        cycles_ = 0;
    }
    void choose(unsigned board) { at_ = &boards_.at(board); }
    void join(unsigned from, unsigned out, unsigned to, unsigned in, uint64_t latency, uint64_t rate, uint64_t jitter) {
        const LinkEnd &tx = boards_.at(from).ports.links.at(out), &rx = boards_.at(to).ports.links.at(in);
        cables_.emplace_back(Lane{tx.tx_valid, tx.tx_ready, tx.tx_data, tx.bytes}, Lane{rx.rx_valid, rx.rx_ready, rx.rx_data, rx.bytes},
                             latency, rate, jitter, cables_.size() + 1);
    }
    void mend() {
        for (Cable& cable : cables_) cable.reset();
    }
    // Spoils the next word that carries data on the n-th of the links that were joined.
    void spoil(unsigned cable, unsigned damage, uint64_t bits) {
        cables_.at(cable).arm(static_cast<Damage>(damage), bits, ~0ull);
    }
#if VM_TRACE_FST
    ~Model() { if (trace_) trace_->close(); }
#endif

    void stall(uint64_t seed) {
        uint64_t stream = seed;
        for (Board& board : boards_) {
            for (Source& source : board.sources) source.stall = Stall(seed ? mix(stream += 0x9E3779B97F4A7C15ull) : 0);
            for (Sink& sink : board.sinks) sink.stall = Stall(seed ? mix(stream += 0x9E3779B97F4A7C15ull) : 0);
            for (AxiMemory& memory : board.memories) memory.stall(seed ? mix(stream += 0x9E3779B97F4A7C15ull) : 0);
        }
    }

    int read(uint32_t address, uint32_t* value) {
        const Lite& lite = at_->ports.lite;
        *lite.araddr = static_cast<SData>(address);
        *lite.arvalid = 1;
        *lite.rready = 1;
        for (int i = 0; i < kAnswerCycles; ++i) {
            settle();
            const bool taken = *lite.arvalid && *lite.arready, answered = *lite.rvalid;
            const int response = *lite.rresp;
            *value = *lite.rdata;
            clock();
            if (taken) *lite.arvalid = 0;
            if (answered) return *lite.rready = 0, response;
        }
        *lite.arvalid = *lite.rready = 0;
        return kNoAnswer;
    }

    int write(uint32_t address, uint32_t value, unsigned strobes) {
        const Lite& lite = at_->ports.lite;
        *lite.awaddr = static_cast<SData>(address);
        *lite.wdata = value;
        *lite.wstrb = static_cast<CData>(strobes);
        *lite.awvalid = *lite.wvalid = *lite.bready = 1;
        for (int i = 0; i < kAnswerCycles; ++i) {
            settle();
            const bool address_taken = *lite.awready, data_taken = *lite.wready, answered = *lite.bvalid;
            const int response = *lite.bresp;
            clock();
            if (address_taken) *lite.awvalid = 0;
            if (data_taken) *lite.wvalid = 0;
            if (answered) return *lite.bready = 0, response;
        }
        *lite.awvalid = *lite.wvalid = *lite.bready = 0;
        return kNoAnswer;
    }

    void push(unsigned port, const uint8_t* words, const uint8_t* last, uint64_t count) {
        Source& source = at_->sources.at(port);
        if (source.sent == source.last.size() && source.sent) {
            source.words.clear();
            source.last.clear();
            source.sent = 0;
        }
        source.words.insert(source.words.end(), words, words + count * at_->ports.bytes);
        source.last.insert(source.last.end(), last, last + count);
    }

    // Clock until every output has so many whole packets waiting.
    int run(const uint64_t* wanted, uint64_t most_cycles) {
        for (uint64_t i = 0; i < most_cycles; ++i) {
            bool reached = true;
            for (size_t k = 0; k < at_->sinks.size(); ++k) reached = reached && at_->sinks[k].packets.size() >= wanted[k];
            if (reached) return kReached;
            step();
            if (unstable_) return kUnstable;
            if (*violation()) return kViolation;
        }
        for (size_t k = 0; k < at_->sinks.size(); ++k) if (at_->sinks[k].packets.size() < wanted[k]) return kOutOfCycles;
        return kReached;
    }

    uint64_t waiting(unsigned port) const { return at_->sinks.at(port).packets.size(); }
    uint64_t unsent(unsigned port) const { return at_->sources.at(port).last.size() - at_->sources.at(port).sent; }
    uint64_t cycles() const { return cycles_; }
    uint64_t refused(unsigned port, bool input) const { return input ? at_->sources.at(port).refused : at_->sinks.at(port).refused; }

    // Words of the first packet that waits, 0 if there is none; copied and removed where a buffer of so many words is given.
    uint64_t pull(unsigned port, uint8_t* buffer, uint64_t most_words, uint32_t* kept_bytes, uint32_t* aborted) {
        Sink& sink = at_->sinks.at(port);
        if (sink.packets.empty()) return 0;
        const Packet packet = sink.packets.front();
        *kept_bytes = packet.kept_bytes;
        *aborted = packet.aborted;
        if (!buffer || packet.words > most_words) return packet.words;
        std::memcpy(buffer, sink.words.data() + sink.taken_bytes, packet.words * at_->ports.bytes);
        sink.taken_bytes += packet.words * at_->ports.bytes;
        sink.packets.pop_front();
        if (sink.packets.empty() && !sink.open_words) {
            sink.words.clear();
            sink.taken_bytes = 0;
        }
        return packet.words;
    }

    AxiMemory* memory() { return at_->memories.empty() ? nullptr : &at_->memories.front(); }
    const char* violation() {
        for (AxiMemory& memory : at_->memories) if (!memory.violation().empty()) return memory.violation().c_str();
        return "";
    }
    void place(uint64_t base, uint64_t size) {
        for (AxiMemory& memory : at_->memories) memory.place(base, size);
    }

    // What resetting the DMA channels does: everything that waits on the host's side is gone, also in mid-packet.
    void cancel() {
        for (Source& source : at_->sources) {
            source.words.clear();
            source.last.clear();
            source.sent = 0;
            source.offered = false;
        }
        for (Sink& sink : at_->sinks) {
            sink.words.clear();
            sink.packets.clear();
            sink.taken_bytes = sink.open_words = 0;
            sink.waiting = false;
        }
        unstable_ = false;    // a design may withdraw a word when its partner is reset
    }

private:
    void step() {
        settle();
        clock();
    }

    // Show what both sides offer in this cycle.
    void settle() {
        for (Board& board : boards_) {
            const unsigned bytes = board.ports.bytes;
            for (Source& source : board.sources) {
                if (!source.offered && source.sent < source.last.size() && !source.stall.next()) {
                    std::memcpy(source.port.data, source.words.data() + source.sent * bytes, bytes);
                    *source.port.last = source.last[source.sent];
                    source.offered = true;
                }
                *source.port.valid = source.offered;
            }
            for (Sink& sink : board.sinks) *sink.port.ready = !sink.stall.next();
            for (AxiMemory& memory : board.memories) memory.drive(cycles_);
            *board.ports.clk = 0;
        }
        for (Cable& cable : cables_) cable.drive(time_in_links_);
        model_.eval();
        dump();
    }

    // Take note of what moves, then let the clock rise.
    void clock() {
        for (Cable& cable : cables_) cable.look(time_in_links_);
        ++time_in_links_;
        for (Board& board : boards_) {
            for (Source& source : board.sources) {
                if (!source.offered) continue;
                if (*source.port.ready) {
                    ++source.sent;
                    source.offered = false;
                } else {
                    ++source.refused;
                }
            }
            for (Sink& sink : board.sinks) look(sink, board.ports.bytes);
            for (AxiMemory& memory : board.memories) memory.look(cycles_, *board.ports.rst);
            *board.ports.clk = 1;
        }
        model_.eval();
        dump();
        ++cycles_;
    }

    void look(Sink& sink, unsigned bytes) {
        const Port& port = sink.port;
        const uint8_t* data = static_cast<const uint8_t*>(port.data);
        if (sink.waiting && (!*port.valid || std::memcmp(data, sink.held.data(), bytes))) unstable_ = true;
        sink.waiting = *port.valid && !*port.ready;
        sink.refused += sink.waiting;
        if (sink.waiting) std::memcpy(sink.held.data(), data, bytes);
        if (!*port.valid || !*port.ready) return;
        sink.words.insert(sink.words.end(), data, data + bytes);
        ++sink.open_words;
        if (!*port.last) return;
        unsigned kept = 0;
        const uint8_t* keep = static_cast<const uint8_t*>(port.keep);
        for (unsigned i = 0; i < bytes; ++i) kept += keep[i / 8] >> (i % 8) & 1;
        sink.packets.push_back({sink.open_words, kept, *port.user != 0});
        sink.open_words = 0;
    }

    void dump() {
#if VM_TRACE_FST
        if (trace_) trace_->dump(time_++);    // two steps per clock cycle
#endif
    }

    VerilatedContext context_;
    BundleHandle model_;
    std::deque<Board> boards_;    // whose places do not change
    std::deque<Cable> cables_;
    Board* at_ = nullptr;
    uint64_t cycles_ = 0, time_ = 0, time_in_links_ = 1;
    bool unstable_ = false;
#if VM_TRACE_FST
    std::unique_ptr<VerilatedFstC> trace_;
#endif
};

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// Memory images are read from `folder`, which is the working directory only meanwhile.
EXPORT void* shell_open(unsigned design, uint64_t seed, const char* folder, const char* trace) {
    char before[PATH_MAX];
    if (!getcwd(before, sizeof before)) return nullptr;
    const std::string target = trace ? (trace[0] == '/' ? trace : std::string(before) + "/" + trace) : "";
    if (chdir(folder)) return nullptr;
    Model* model = new Model(design, seed, trace ? target.c_str() : nullptr);
    if (chdir(before)) { delete model; return nullptr; }
    return model;
}
EXPORT void shell_close(void* model) { delete static_cast<Model*>(model); }
EXPORT void shell_choose(void* model, unsigned board) { static_cast<Model*>(model)->choose(board); }
EXPORT void shell_join(void* model, unsigned from, unsigned out, unsigned to, unsigned in, uint64_t latency, uint64_t rate,
                       uint64_t jitter) {
    static_cast<Model*>(model)->join(from, out, to, in, latency, rate, jitter);
}
EXPORT void shell_mend(void* model) { static_cast<Model*>(model)->mend(); }
EXPORT void shell_spoil(void* model, unsigned cable, unsigned damage, uint64_t bits) {
    static_cast<Model*>(model)->spoil(cable, damage, bits);
}
EXPORT void shell_stall(void* model, uint64_t seed) { static_cast<Model*>(model)->stall(seed); }
EXPORT int shell_read(void* model, uint32_t address, uint32_t* value) { return static_cast<Model*>(model)->read(address, value); }
EXPORT int shell_write(void* model, uint32_t address, uint32_t value, unsigned strobes) {
    return static_cast<Model*>(model)->write(address, value, strobes);
}
EXPORT void shell_push(void* model, unsigned port, const uint8_t* words, const uint8_t* last, uint64_t count) {
    static_cast<Model*>(model)->push(port, words, last, count);
}
EXPORT int shell_run(void* model, const uint64_t* wanted, uint64_t cycles) { return static_cast<Model*>(model)->run(wanted, cycles); }
EXPORT uint64_t shell_waiting(void* model, unsigned port) { return static_cast<Model*>(model)->waiting(port); }
EXPORT uint64_t shell_unsent(void* model, unsigned port) { return static_cast<Model*>(model)->unsent(port); }
EXPORT uint64_t shell_cycles(void* model) { return static_cast<Model*>(model)->cycles(); }
EXPORT uint64_t shell_refused(void* model, unsigned port, int input) { return static_cast<Model*>(model)->refused(port, input); }
EXPORT uint64_t shell_pull(void* model, unsigned port, uint8_t* buffer, uint64_t words, uint32_t* kept, uint32_t* aborted) {
    return static_cast<Model*>(model)->pull(port, buffer, words, kept, aborted);
}
EXPORT void shell_place(void* model, uint64_t base, uint64_t size) {
    static_cast<Model*>(model)->place(base, size);
}
// Bytes of memory from or to a host, past the master; whether they lie in it.
EXPORT int shell_copy(void* model, uint64_t address, uint8_t* bytes, uint64_t count, int inward) {
    AxiMemory* memory = static_cast<Model*>(model)->memory();
    return memory && memory->copy(address, bytes, count, inward != 0);
}
EXPORT void shell_fault(void* model, int write, uint64_t after, unsigned response) {
    if (AxiMemory* memory = static_cast<Model*>(model)->memory()) memory->fault(write != 0, after, response);
}
EXPORT const char* shell_violation(void* model) { return static_cast<Model*>(model)->violation(); }
EXPORT void shell_cancel(void* model) { static_cast<Model*>(model)->cancel(); }
