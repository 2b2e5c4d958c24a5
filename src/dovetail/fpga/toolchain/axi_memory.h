// Memory behind an AXI4 master: bursts in order, a fixed time after they were asked for, at a fixed rate for both ways, with
// random pauses on every channel; and a checker of what the master must keep to (ARM IHI 0022, and what our masters promise).
#pragma once
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "stall.h"
#include "verilated.h"

struct AxiPins {
    QData *araddr, *awaddr;
    CData *arlen, *arsize, *arburst, *arvalid, *arready, *rvalid, *rresp, *rlast, *rready;
    CData *awlen, *awsize, *awburst, *awvalid, *awready, *wvalid, *wlast, *wready, *bvalid, *bresp, *bready;
    void *rdata, *wdata, *wstrb;
    unsigned bytes;    // of a bus word
    uint64_t sixteenths, latency;    // of a byte per clock; clocks
    bool writes;
};

namespace {

class AxiMemory {
public:
    // Masters of one design share what lies in memory.
    AxiMemory(const AxiPins& pins, std::shared_ptr<std::vector<uint8_t>> content) : pins_(pins), shared_(std::move(content)) {}

    void place(uint64_t base, uint64_t size) {
        base_ = base;
        shared_->assign(size, 0xA5);    // what nobody has written is no zero
    }
    bool copy(uint64_t address, uint8_t* bytes, uint64_t count, bool inward) {
        if (!inside(address, count)) return false;
        uint8_t* const here = shared_->data() + (address - base_);
        inward ? std::memcpy(here, bytes, count) : std::memcpy(bytes, here, count);
        return true;
    }
    void stall(uint64_t seed) {
        uint64_t stream = seed;
        for (Stall& stall : stalls_) stall = Stall(seed ? mix(stream += 0x9E3779B97F4A7C15ull) : 0);
    }
    // The burst after so many others of its direction is answered so.
    void fault(bool write, uint64_t after, unsigned response) { faults_[write].push_back({after + bursts_[write], response}); }
    const std::string& violation() const { return violation_; }

    // Show what memory offers in this cycle.
    void drive(uint64_t cycle) {
        *pins_.arready = !stalls_[0].next();
        if (credit_ < 16 * pins_.bytes) credit_ += pins_.sixteenths;
        const bool due = !reads_.empty() && reads_.front().from <= cycle, both = due && pins_.writes && *pins_.wvalid;
        turn_ = both ? !turn_ : due;
        const bool rate = credit_ >= 16 * pins_.bytes;
        if (!r_shown_ && rate && due && turn_ && !stalls_[1].next()) {
            const Burst& burst = reads_.front();
            std::memset(pins_.rdata, 0xEE, pins_.bytes);
            copy(burst.address, static_cast<uint8_t*>(pins_.rdata), pins_.bytes, false);
            *pins_.rlast = burst.words == 1;
            *pins_.rresp = static_cast<CData>(burst.response);
            r_shown_ = true;
        }
        *pins_.rvalid = r_shown_;
        if (!pins_.writes) return;
        *pins_.awready = !stalls_[2].next();
        *pins_.wready = rate && !(due && turn_) && !stalls_[3].next();
        if (!b_shown_ && !answers_.empty() && answers_.front().from <= cycle && !stalls_[4].next()) {
            *pins_.bresp = static_cast<CData>(answers_.front().response);
            b_shown_ = true;
        }
        *pins_.bvalid = b_shown_;
    }

    // Take note of what moves in this cycle.
    void look(uint64_t cycle, bool reset) {
        if (reset) return;
        if (*pins_.rvalid && *pins_.rready) {
            r_shown_ = false;
            credit_ -= 16 * pins_.bytes;
            reads_.front().address += pins_.bytes;
            if (!--reads_.front().words) reads_.pop_front();
        }
        hold(0, *pins_.arvalid, *pins_.arready, {*pins_.araddr, *pins_.arlen, *pins_.arsize, *pins_.arburst});
        if (*pins_.arvalid && *pins_.arready) {
            const Burst burst = begin(false, *pins_.araddr, *pins_.arlen, *pins_.arsize, *pins_.arburst, cycle);
            for (const Burst& other : writes_) if (overlap(burst, other)) blame("a read of what is being written");
            for (const Burst& other : answers_) if (overlap(burst, other)) blame("a read of what was not answered as written");
            reads_.push_back(burst);
        }
        if (pins_.writes) look_at_writes(cycle);
    }
    bool idle() const { return reads_.empty() && writes_.empty() && answers_.empty() && words_.empty(); }

private:
    struct Burst {
        uint64_t address, words, from;
        unsigned response;
        uint64_t first, size;    // of the whole burst
    };
    struct Word {
        std::vector<uint8_t> bytes, strobes;
        bool last;
    };
    struct Fault {
        uint64_t burst;
        unsigned response;
    };

    void look_at_writes(uint64_t cycle) {
        if (*pins_.bvalid && *pins_.bready) {
            b_shown_ = false;
            answers_.pop_front();
        }
        hold(1, *pins_.awvalid, *pins_.awready, {*pins_.awaddr, *pins_.awlen, *pins_.awsize, *pins_.awburst});
        if (*pins_.awvalid && *pins_.awready) {
            const Burst burst = begin(true, *pins_.awaddr, *pins_.awlen, *pins_.awsize, *pins_.awburst, cycle);
            for (const Burst& other : reads_) if (overlap(burst, other)) blame("a write to what is being read");
            writes_.push_back(burst);
        }
        const uint8_t *data = static_cast<uint8_t*>(pins_.wdata), *strobes = static_cast<uint8_t*>(pins_.wstrb);
        std::vector<uint64_t> shown = {*pins_.wlast};
        if (*pins_.wvalid) {
            shown.insert(shown.end(), data, data + pins_.bytes);
            shown.insert(shown.end(), strobes, strobes + (pins_.bytes + 7) / 8);
        }
        hold(2, *pins_.wvalid, *pins_.wready, shown);
        if (*pins_.wvalid && *pins_.wready) {
            credit_ -= 16 * pins_.bytes;
            words_.push_back({{data, data + pins_.bytes}, {strobes, strobes + (pins_.bytes + 7) / 8}, *pins_.wlast != 0});
        }
        while (!writes_.empty() && !words_.empty()) write(cycle);
        if (words_.size() > 256) blame("more than a burst of data without an address");
    }

    void write(uint64_t cycle) {
        Burst& burst = writes_.front();
        const Word& word = words_.front();
        if (word.last != (burst.words == 1)) blame("wlast not on the last word of a burst");
        for (unsigned i = 0; i < pins_.bytes; ++i)
            if (word.strobes[i / 8] >> (i % 8) & 1 && inside(burst.address, pins_.bytes)) (*shared_)[burst.address - base_ + i] = word.bytes[i];
        burst.address += pins_.bytes;
        words_.pop_front();
        if (--burst.words) return;
        burst.from = cycle + pins_.latency;
        answers_.push_back(burst);
        writes_.pop_front();
    }

    Burst begin(bool write, uint64_t address, unsigned length, unsigned size, unsigned kind, uint64_t cycle) {
        const uint64_t words = length + 1, bytes = words * pins_.bytes;
        if (kind != 1) blame("a burst that is not INCR");
        if (1u << size != pins_.bytes) blame("words narrower than the bus");
        if (address % pins_.bytes) blame("an address that is no multiple of a word");
        if (address / 4096 != (address + bytes - 1) / 4096) blame("a burst across 4096 bytes");
        if (!inside(address, bytes)) blame("a burst outside the memory");
        unsigned response = inside(address, bytes) ? 0 : 3;
        for (const Fault& fault : faults_[write]) if (fault.burst == bursts_[write]) response = fault.response;
        ++bursts_[write];
        return {address, words, cycle + pins_.latency, response, address, bytes};
    }
    bool inside(uint64_t address, uint64_t count) const {
        return address >= base_ && address - base_ <= shared_->size() && count <= shared_->size() - (address - base_);
    }
    static bool overlap(const Burst& a, const Burst& b) { return a.first < b.first + b.size && b.first < a.first + a.size; }
    // What is valid stays as it is until it is taken.
    void hold(unsigned channel, bool valid, bool ready, const std::vector<uint64_t>& shown) {
        static const char* const kNames[] = {"ar", "aw", "w"};
        std::vector<uint64_t>& held = held_[channel];
        if (!held.empty() && (!valid || held != shown)) blame(std::string("channel ") + kNames[channel] + " changed before it was taken");
        held = valid && !ready ? shown : std::vector<uint64_t>();
    }
    void blame(const std::string& what) {
        if (violation_.empty()) violation_ = what;
    }

    AxiPins pins_;
    uint64_t base_ = 0, credit_ = 0, bursts_[2] = {0, 0};
    std::shared_ptr<std::vector<uint8_t>> shared_;
    std::vector<Stall> stalls_ = std::vector<Stall>(5, Stall(0));
    std::deque<Burst> reads_, writes_, answers_;
    std::deque<Word> words_;
    std::vector<Fault> faults_[2];
    std::vector<uint64_t> held_[3];
    std::string violation_;
    bool r_shown_ = false, b_shown_ = false, turn_ = false;
};

}  // namespace
