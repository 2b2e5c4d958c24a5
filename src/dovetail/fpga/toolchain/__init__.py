"""External FPGA tools: Verilator, Yosys and nextpnr, how they are run and where their results are kept."""
