// Runs a generated accelerator that fetches everything from memory by itself: one AXI4 master, one AXI4-Lite slave for control.
//
// usage: harness FOLDER   where FOLDER/memory.bin is the memory before the run; FOLDER/after.bin receives it after the run.
// The memory is ideal: it takes an address in every clock and delivers or accepts a word in every clock, one clock later.
// Prints `cycles N`, counted from the write that starts the accelerator to its interrupt.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <string>
#include <vector>

#include "Bundle.h"
#include "registers.h"
#include "verilated.h"

namespace {

constexpr uint64_t kLimit = 20'000'000;

struct Burst {
    uint32_t address, left;
};

class Board {
public:
    Board(Bundle& model, std::vector<uint8_t>& memory) : m_(model), memory_(memory) {
        m_.maxi_arready = m_.maxi_awready = 1;
        m_.maxi_bresp = m_.maxi_rresp = 0;
        m_.saxi_wstrb = 15;
        m_.saxi_bready = m_.saxi_rready = 1;
    }

    void reset() {
        m_.RESETN = 0;
        for (int i = 0; i < 32; ++i) clock();
        m_.RESETN = 1;
        for (int i = 0; i < 32; ++i) clock();
    }

    void write(uint32_t index, uint32_t value) {
        m_.saxi_awaddr = 4 * index;
        m_.saxi_wdata = value;
        bool address = true, data = true;
        while (address || data) {
            m_.saxi_awvalid = address;
            m_.saxi_wvalid = data;
            settle();
            const bool address_taken = address && m_.saxi_awready, data_taken = data && m_.saxi_wready;
            edge();
            address = address && !address_taken;
            data = data && !data_taken;
        }
        m_.saxi_awvalid = m_.saxi_wvalid = 0;
    }

    void clock() {
        settle();
        edge();
    }

    bool interrupted() const { return m_.irq; }
    uint64_t cycles() const { return cycles_; }

private:
    static constexpr size_t kWord = sizeof(Bundle::maxi_rdata);

    void settle() {
        m_.maxi_rvalid = !reads_.empty();
        if (!reads_.empty()) {
            std::memcpy(&m_.maxi_rdata, at(reads_.front().address), kWord);
            m_.maxi_rlast = reads_.front().left == 0;
        }
        m_.maxi_wready = !writes_.empty();
        m_.maxi_bvalid = answers_ > 0;
        m_.CLK = 0;
        m_.eval();
    }

    void edge() {
        const bool read = m_.maxi_rvalid && m_.maxi_rready, written = m_.maxi_wvalid && m_.maxi_wready;
        const bool answered = m_.maxi_bvalid && m_.maxi_bready;
        const bool asks_read = m_.maxi_arvalid, asks_write = m_.maxi_awvalid;
        const Burst next_read{static_cast<uint32_t>(m_.maxi_araddr), m_.maxi_arlen};
        const Burst next_write{static_cast<uint32_t>(m_.maxi_awaddr), m_.maxi_awlen};
        if (written) store();
        m_.CLK = 1;
        m_.eval();
        ++cycles_;
        if (read) advance(reads_);
        if (written && advance(writes_)) ++answers_;
        if (answered) --answers_;
        if (asks_read) reads_.push_back(next_read);
        if (asks_write) writes_.push_back(next_write);
    }

    void store() {
        uint8_t* const word = at(writes_.front().address);
        const uint8_t* const data = reinterpret_cast<const uint8_t*>(&m_.maxi_wdata);
        for (size_t i = 0; i < kWord; ++i)
            if (m_.maxi_wstrb >> i & 1) word[i] = data[i];
    }

    static bool advance(std::deque<Burst>& bursts) {
        Burst& burst = bursts.front();
        burst.address += kWord;
        if (burst.left--) return false;
        bursts.pop_front();
        return true;
    }

    uint8_t* at(uint32_t address) {
        if (address + kWord > memory_.size()) memory_.resize(address + kWord);
        return memory_.data() + address;
    }

    Bundle& m_;
    std::vector<uint8_t>& memory_;
    std::deque<Burst> reads_, writes_;
    uint64_t cycles_ = 0, answers_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
    if (count != 2) return 2;
    const std::string folder = arguments[1];
    std::ifstream before(folder + "/memory.bin", std::ios::binary);
    std::vector<uint8_t> memory((std::istreambuf_iterator<char>(before)), std::istreambuf_iterator<char>());
    VerilatedContext context;
    context.randReset(0);    // what NNgen leaves without a value, its own simulation sets to zero
    Bundle model(&context);
    Board board(model, memory);
    board.reset();
    board.write(kInterruptEnable, 1);
    const uint64_t start = board.cycles();
    board.write(kStart, 1);
    while (!board.interrupted() && board.cycles() - start < kLimit) board.clock();
    if (!board.interrupted()) return 1;
    std::printf("cycles %llu\n", static_cast<unsigned long long>(board.cycles() - start));
    std::ofstream after(folder + "/after.bin", std::ios::binary);
    after.write(reinterpret_cast<const char*>(memory.data()), static_cast<std::streamsize>(memory.size()));
    return after ? 0 : 2;
}
