"""A minimal typed hardware description, and its printer: Verilog-2005."""
