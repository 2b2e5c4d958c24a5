"""LQ multi-FPGA 2020: AlexNet in two bits, over boards."""
