// The pins of a Verilated bundle's AXI shells, as the generated bundle.cpp lists them.
#pragma once
#include <vector>

#include "axi_memory.h"

struct Lite {
    SData *awaddr, *araddr;
    CData *awvalid, *awready, *wvalid, *wready, *wstrb, *bvalid, *bready, *bresp;
    CData *arvalid, *arready, *rvalid, *rready, *rresp;
    IData *wdata, *rdata;
};
struct Port {
    CData *valid, *ready, *last, *user;    // `user` of outputs only
    void* data;
    void* keep;
};
struct LinkEnd {
    CData *rx_valid, *rx_ready;
    void* rx_data;
    CData *tx_valid, *tx_ready;
    void* tx_data;
    size_t bytes;    // of the Verilated ports
};
struct Ports {
    CData *clk, *rst;
    unsigned bytes;    // of a bus word
    Lite lite;
    std::vector<Port> inputs, outputs;
    std::vector<AxiPins> memories;    // of all masters
    std::vector<LinkEnd> links;       // to other boards
};
