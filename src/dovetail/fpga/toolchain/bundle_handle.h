// A Verilated bundle as a harness sees it; its generated bundle.cpp defines this, so that a harness is compiled once for all bundles.
#pragma once
#include <vector>

#include "verilated.h"

class Bundle;
class VerilatedFstC;
struct Ports;    // of streams in ports.h, of AXI shells in axi_ports.h

class BundleHandle {
public:
    explicit BundleHandle(VerilatedContext& context);
    ~BundleHandle();
    BundleHandle(const BundleHandle&) = delete;
    void eval();
    void final();
    void trace(VerilatedFstC* file);    // of bundles that can draw waveforms
    std::vector<Ports> describe();

private:
    Bundle* model_;
};
