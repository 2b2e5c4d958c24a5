// The whole chip at its pins: a UART at the far end of a terminal, which damages what it carries where it is told to.
//
// usage: simulation FD BIT_CLOCKS SEED EVERY   FD: the far end of a pseudo-terminal; BIT_CLOCKS: clocks of a bit, a fraction may be;
// EVERY: a byte in so many, of either direction, is spoilt (0: none): a bit is flipped, the byte is lost, comes twice, or lacks its
// stop bit. The program ends when FD does; then `clocks N spoilt TO_BOARD FROM_BOARD` is said.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>

#include "Bundle.h"
#include "verilated.h"

namespace {

constexpr int kBurst = 500;   // clocks between two looks at the terminal
constexpr int kReset = 64;    // clocks for which the button is held
constexpr uint64_t kQuiet = 200000;  // clocks without a bit after which a burst costs a rest, so that waiting takes no processor

class Faults {
public:
    Faults(uint64_t seed, uint64_t every) : random_(seed), every_(every) {}
    // Puts what becomes of a byte on the line into `bits`: start, data, stop.
    void carry(uint8_t octet, std::deque<bool>& bits) {
        const bool spoils = every_ && random_() % every_ == 0;
        count_ += spoils;
        const uint64_t kind = spoils ? random_() % 4 : 4;
        if (kind == 0) octet ^= uint8_t(1u << random_() % 8);
        for (int copies = kind == 1 ? 0 : kind == 2 ? 2 : 1; copies > 0; --copies) {
            bits.push_back(false);
            for (int i = 0; i < 8; ++i) bits.push_back(octet >> i & 1);
            bits.push_back(kind != 3);
            if (kind == 3) bits.insert(bits.end(), 2, true);
        }
    }
    uint64_t count() const { return count_; }

private:
    std::mt19937_64 random_;
    uint64_t every_, count_ = 0;
};

// Bits to the chip.
class Sender {
public:
    explicit Sender(double bit_clocks) : bit_clocks_(bit_clocks) {}
    std::deque<bool> bits;
    bool step() {
        if (left_ <= 0) {
            if (bits.empty()) {
                level_ = true;
                return level_;
            }
            level_ = bits.front();
            bits.pop_front();
            left_ += bit_clocks_;
        }
        left_ -= 1;
        return level_;
    }

private:
    double bit_clocks_, left_ = 0;
    bool level_ = true;
};

// Bytes from the chip's line.
class Receiver {
public:
    explicit Receiver(double bit_clocks) : bit_clocks_(bit_clocks) {}
    // Whether a byte is complete, which is then in `octet`.
    bool step(bool level) {
        if (bit_ < 0) {
            if (!level) {
                bit_ = 0;
                left_ = bit_clocks_ / 2;
            }
            return false;
        }
        left_ -= 1;
        if (left_ > 0) return false;
        left_ += bit_clocks_;
        if (bit_ == 0 && level) bit_ = -1;
        else if (bit_ == 9) {
            bit_ = -1;
            return level;
        } else {
            if (bit_ > 0) octet = uint8_t(octet >> 1 | (level ? 0x80 : 0));
            ++bit_;
        }
        return false;
    }
    uint8_t octet = 0;

private:
    double bit_clocks_, left_ = 0;
    int bit_ = -1;
};

bool write_all(int fd, const uint8_t* from, size_t count) {
    while (count) {
        const ssize_t done = write(fd, from, count);
        if (done < 0 && errno != EAGAIN && errno != EINTR) return false;
        if (done < 0) {
            pollfd ready{fd, POLLOUT, 0};
            poll(&ready, 1, 10);
            continue;
        }
        from += done;
        count -= size_t(done);
    }
    return true;
}

}  // namespace

int main(int count, char** words) {
    if (count != 5) return 2;
    const int fd = std::atoi(words[1]);
    const double bit_clocks = std::atof(words[2]);
    const uint64_t seed = std::strtoull(words[3], nullptr, 10), every = std::strtoull(words[4], nullptr, 10);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    auto context = std::make_unique<VerilatedContext>();
    auto chip = std::make_unique<Bundle>(context.get());
    Faults into(seed, every), back(seed + 1, every);
    Sender sender(bit_clocks);
    Receiver receiver(bit_clocks);
    uint64_t clocks = 0, quiet = 0;
    chip->from_host = 1;
    chip->reset_n = 0;
    bool open = true;
    std::deque<bool> line;  // what comes from the chip, spoilt, as bytes again
    while (open) {
        for (int i = 0; i < kBurst && open; ++i, ++clocks) {
            chip->reset_n = clocks >= kReset;
            chip->from_host = sender.step();
            chip->clock = 0;
            chip->eval();
            chip->clock = 1;
            chip->eval();
            if (!receiver.step(chip->to_host)) continue;
            quiet = 0;
            line.clear();
            back.carry(receiver.octet, line);
            for (size_t at = 0; at + 10 <= line.size(); at += 10) {
                uint8_t octet = 0;
                for (int bit = 0; bit < 8; ++bit) octet |= uint8_t(line[at + 1 + bit] << bit);
                if (line[at + 9]) open = open && write_all(fd, &octet, 1);
            }
        }
        uint8_t octets[512];
        quiet += kBurst;
        pollfd ready{fd, POLLIN, 0};
        if (sender.bits.size() < 4096 && poll(&ready, 1, quiet > kQuiet ? 1 : 0) > 0) {
            const ssize_t got = read(fd, octets, sizeof octets);
            if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) open = false;
            for (ssize_t at = 0; at < got; ++at) into.carry(octets[at], sender.bits);
            if (got > 0) quiet = 0;
        }
    }
    chip->final();
    std::printf("clocks %llu spoilt %llu %llu\n", (unsigned long long)clocks, (unsigned long long)into.count(),
                (unsigned long long)back.count());
    return 0;
}
