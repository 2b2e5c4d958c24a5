cell axi_dma dma@n@
set_property -dict [list CONFIG.c_include_sg 0 CONFIG.c_sg_length_width 26 CONFIG.c_addr_width @address_bits@ @halves@] [get_bd_cells dma@n@]
bus registers/M@slave@_AXI dma@n@/S_AXI_LITE
wire reset/peripheral_aresetn dma@n@/axi_resetn
wire ps/@clock@ dma@n@/s_axi_lite_aclk
@ways@
