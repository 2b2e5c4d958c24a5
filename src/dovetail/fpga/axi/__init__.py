"""The shell around a design: AXI4-Stream ports, AXI4-Lite registers, soft reset, self-test."""
