"""Other people's generators of hardware beside ours: the same layers, the same Yosys, the same Verilator."""
