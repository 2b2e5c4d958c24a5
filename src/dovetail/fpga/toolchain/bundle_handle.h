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
    bool save(const char* path);       // of bundles that can be saved; false where the file cannot be written
    bool restore(const char* path);
    void trace(VerilatedFstC* file);    // of bundles that can draw waveforms
    std::vector<Ports> describe();

private:
    Bundle* model_;
};
