// Random back-pressure, the same for every harness: a seed decides when a source or a sink makes the design wait.
#pragma once
#include <cstdint>

namespace {

// Bursty coin: keeps one stalling rate for a random while, then draws another; a seed of 0 never stalls.
// Some whiles are long and some rates are "always", so that FIFOs fill up and run dry.
class Stall {
public:
    explicit Stall(uint64_t seed) : state_(seed) {}
    bool next() {
        if (!state_) return false;
        if (!left_--) {
            left_ = draw() % (draw() % 8 ? 24 : 240);
            rate_ = kRates[draw() % 5];
        }
        return (draw() & 255) < rate_;
    }

private:
    static constexpr unsigned kRates[5] = {0, 64, 128, 230, 256};
    uint64_t draw() {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        return state_ >> 11;
    }
    uint64_t state_, left_ = 0;
    unsigned rate_ = 0;
};
constexpr unsigned Stall::kRates[5];

// SplitMix64 finalizer: neighbouring seeds give unrelated, non-zero generator states.
uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return (x ^ (x >> 31)) | 1;
}

}  // namespace
