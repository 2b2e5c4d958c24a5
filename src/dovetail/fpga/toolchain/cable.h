// A link between boards in simulation: one direction, with latency, jitter, bandwidth and faults.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "stall.h"
#include "verilated.h"

namespace {

constexpr uint64_t kMillion = 1000000;

class Random {
public:
    explicit Random(uint64_t seed) : state_(mix(seed)) {}
    uint64_t draw() {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        return state_ >> 11;
    }
    uint64_t below(uint64_t limit) { return draw() % limit; }

private:
    uint64_t state_;
};

using Word = std::vector<uint8_t>;

// The pins of one end.
struct Lane {
    CData* valid;
    CData* ready;
    void* data;
    size_t bytes;
};

enum Damage { kLost, kTwice, kFlipped, kDamages, kCut = kDamages };
const char* const kDamageNames[] = {"lost", "duplicated", "flipped", "cut"};

// One direction of a link: words arrive in order, each `latency` clocks after it was taken and up to `jitter` later.
class Cable {
public:
    Cable(const Lane& from, const Lane& to, uint64_t latency, uint64_t rate, uint64_t jitter, uint64_t seed)
        : from_(from), to_(to), latency_(latency), rate_(rate), jitter_(jitter), random_(seed) {}
    void drive(uint64_t cycle) {
        if (credit_ < kMillion) credit_ += rate_;
        *from_.ready = credit_ >= kMillion;
        *to_.valid = !words_.empty() && words_.front().due <= cycle;
        if (!*to_.valid) return;
        std::memcpy(to_.data, words_.front().bytes.data(), to_.bytes);
        words_.pop_front();
    }
    void look(uint64_t cycle) {
        if (!*from_.valid || !*from_.ready) return;
        credit_ -= kMillion;
        Word word(static_cast<uint8_t*>(from_.data), static_cast<uint8_t*>(from_.data) + from_.bytes);
        data_ = word[5] >> 4 & 1;
        ++carried_;
        carried_data_ += data_;
        if (struck_ && damage_ == kCut) return;
        if (!armed_ || (!data_ && cycle < until_)) return push(word, cycle);
        armed_ = false;
        struck_ = true;
        struck_data_ = data_;
        if (damage_ == kLost || damage_ == kCut) return;
        if (damage_ == kTwice) push(word, cycle);
        if (damage_ == kFlipped)
            for (uint64_t n = 1 + random_.below(4), at = 0, bit = random_.below(bits_); at < n; ++at) {
                word[bit >> 3] ^= static_cast<uint8_t>(1u << (bit & 7));
                bit = (bit + 1 + random_.below(bits_ / 4)) % bits_;    // four of them stay apart: none is flipped back
            }
        push(word, cycle);
    }
    // Spoils the next word; until a given cycle, only one that carries data.
    void arm(Damage damage, uint64_t bits, uint64_t until) {
        until_ = until;
        armed_ = true;
        struck_ = false;
        damage_ = damage;
        bits_ = bits;
    }
    // Its state to a file or from one; of faults nothing.
    template <typename State>
    void pass(State& state) {
        uint64_t waiting = words_.size();
        state.pass(waiting);
        words_.resize(waiting);
        for (Item& item : words_) {
            state.pass(item.bytes);
            state.pass(item.due);
        }
        state.pass(random_);
        for (uint64_t* value : {&credit_, &due_, &carried_, &carried_data_}) state.pass(*value);
    }
    uint64_t carried() const { return carried_; }
    uint64_t carried_data() const { return carried_data_; }
    bool struck() const { return struck_; }
    bool struck_data() const { return struck_data_; }
    void reset() {
        words_.clear();
        armed_ = struck_ = false;
        credit_ = due_ = 0;
        *from_.ready = *to_.valid = 0;
    }

private:
    struct Item {
        Word bytes;
        uint64_t due;
    };
    void push(const Word& word, uint64_t cycle) {
        due_ = std::max(due_ + 1, cycle + latency_ + (jitter_ ? random_.below(jitter_ + 1) : 0));
        words_.push_back({word, due_});
    }
    Lane from_, to_;
    uint64_t latency_, rate_, jitter_, credit_ = 0, due_ = 0, bits_ = 0, until_ = 0, carried_ = 0, carried_data_ = 0;
    Random random_;
    std::deque<Item> words_;
    Damage damage_ = kLost;
    bool armed_ = false, struck_ = false, data_ = false, struck_data_ = false;
};

}  // namespace
