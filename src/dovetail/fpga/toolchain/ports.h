// The streams of a Verilated bundle's designs, as the generated bundle.cpp lists them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "verilated.h"

struct Port {
    const char* name;
    CData* valid;
    CData* ready;
    void* data;
    size_t bytes;            // size of the Verilated port, one beat in a file
    uint64_t beats;          // per frame
};
struct MemoryPort {
    CData* request_valid;
    CData* request_ready;
    IData* address;          // in beats
    CData* beats;
    CData* valid;
    void* data;
    size_t bytes;            // size of the Verilated port
    size_t beat_bytes;
    const char* image;       // a beat per line, hexadecimal
    uint64_t sixteenths, latency;    // of a byte per clock; clocks
    uint64_t size;           // in beats; what lies behind the image begins as zeros
    unsigned parts;          // what `valid` is when all parts of a beat are there
    CData* request_write;    // these are null where nothing is written
    CData* write_valid;
    CData* write_ready;
    void* write_data;
    CData* written;
};
struct Ports {
    const char* top;
    CData* clk;
    CData* rst;
    std::vector<Port> inputs, outputs;
    std::vector<MemoryPort> memories;    // at most one
};
