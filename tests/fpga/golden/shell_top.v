// oneword behind AXI4-Stream and AXI4-Lite, 512-bit bus, all on one clock.
`default_nettype none
module oneword_axi (
  input wire clk,
  input wire rst,
  input wire s_axi_ctrl_awvalid,
  input wire [11:0] s_axi_ctrl_awaddr,
  input wire s_axi_ctrl_wvalid,
  input wire [31:0] s_axi_ctrl_wdata,
  input wire [3:0] s_axi_ctrl_wstrb,
  input wire s_axi_ctrl_bready,
  input wire s_axi_ctrl_arvalid,
  input wire [11:0] s_axi_ctrl_araddr,
  input wire s_axi_ctrl_rready,
  input wire s_axis_in0_tvalid,
  input wire [511:0] s_axis_in0_tdata,
  input wire s_axis_in0_tlast,
  input wire m_axis_out0_tready,
  output wire s_axi_ctrl_awready,
  output wire s_axi_ctrl_wready,
  output wire s_axi_ctrl_bvalid,
  output wire [1:0] s_axi_ctrl_bresp,
  output wire s_axi_ctrl_arready,
  output wire s_axi_ctrl_rvalid,
  output wire [31:0] s_axi_ctrl_rdata,
  output wire [1:0] s_axi_ctrl_rresp,
  output wire s_axis_in0_tready,
  output wire m_axis_out0_tvalid,
  output wire [511:0] m_axis_out0_tdata,
  output wire m_axis_out0_tlast,
  output wire [63:0] m_axis_out0_tkeep,
  output wire m_axis_out0_tuser
);
wire soft_rst;
wire abandon;
wire clear;
wire testing;
wire enable;
wire in0_valid;
wire in0_ready;
wire [23:0] in0_data;
wire in0_core_valid;
wire in0_core_ready;
wire [23:0] in0_core_data;
wire [31:0] in0_frames;
wire [31:0] in0_stalls;
wire [31:0] in0_starved;
wire [31:0] in0_early;
wire [31:0] in0_late;
wire [31:0] in0_crc_value;
wire [31:0] in0_high_water;
wire in0_active;
wire in0_waiting;
wire in0_error;
wire out0_valid;
wire out0_ready;
wire [39:0] out0_data;
wire out0_core_valid;
wire out0_core_ready;
wire [39:0] out0_core_data;
wire [31:0] out0_frames;
wire [31:0] out0_stalls;
wire [31:0] out0_aborted;
wire [31:0] out0_crc_value;
wire [31:0] out0_high_water;
wire out0_active;
wire out0_waiting;
wire out0_test_done;
oneword_axi_in0_slice slice_in0 (
  .clk(clk), .rst(soft_rst),
  .in_valid(in0_valid),
  .in_ready(in0_ready),
  .in_data(in0_data),
  .out_valid(in0_core_valid),
  .out_ready(in0_core_ready),
  .out_data(in0_core_data)
);
oneword_axi_in0 port_in0 (
  .clk(clk), .rst(rst),
  .out_valid(in0_valid),
  .out_ready(in0_ready),
  .out_data(in0_data),
  .tvalid(s_axis_in0_tvalid),
  .tdata(s_axis_in0_tdata),
  .tlast(s_axis_in0_tlast),
  .tready(s_axis_in0_tready),
  .soft_rst(soft_rst),
  .abandon(abandon),
  .clear(clear),
  .testing(testing),
  .enable(enable),
  .frames(in0_frames),
  .stalls(in0_stalls),
  .starved(in0_starved),
  .early(in0_early),
  .late(in0_late),
  .crc_value(in0_crc_value),
  .high_water(in0_high_water),
  .active(in0_active),
  .waiting(in0_waiting),
  .error(in0_error)
);
oneword_axi_out0_slice slice_out0 (
  .clk(clk), .rst(soft_rst),
  .out_valid(out0_valid),
  .out_ready(out0_ready),
  .out_data(out0_data),
  .in_valid(out0_core_valid),
  .in_ready(out0_core_ready),
  .in_data(out0_core_data)
);
oneword_axi_out0 port_out0 (
  .clk(clk), .rst(rst),
  .in_valid(out0_valid),
  .in_ready(out0_ready),
  .in_data(out0_data),
  .tvalid(m_axis_out0_tvalid),
  .tdata(m_axis_out0_tdata),
  .tlast(m_axis_out0_tlast),
  .tkeep(m_axis_out0_tkeep),
  .tuser(m_axis_out0_tuser),
  .tready(m_axis_out0_tready),
  .soft_rst(soft_rst),
  .abandon(abandon),
  .clear(clear),
  .testing(testing),
  .frames(out0_frames),
  .stalls(out0_stalls),
  .aborted(out0_aborted),
  .crc_value(out0_crc_value),
  .high_water(out0_high_water),
  .active(out0_active),
  .waiting(out0_waiting),
  .test_done(out0_test_done)
);
oneword_axi_control control (
  .clk(clk), .rst(rst),
  .awvalid(s_axi_ctrl_awvalid),
  .awaddr(s_axi_ctrl_awaddr),
  .wvalid(s_axi_ctrl_wvalid),
  .wdata(s_axi_ctrl_wdata),
  .wstrb(s_axi_ctrl_wstrb),
  .bready(s_axi_ctrl_bready),
  .arvalid(s_axi_ctrl_arvalid),
  .araddr(s_axi_ctrl_araddr),
  .rready(s_axi_ctrl_rready),
  .awready(s_axi_ctrl_awready),
  .wready(s_axi_ctrl_wready),
  .bvalid(s_axi_ctrl_bvalid),
  .bresp(s_axi_ctrl_bresp),
  .arready(s_axi_ctrl_arready),
  .rvalid(s_axi_ctrl_rvalid),
  .rdata(s_axi_ctrl_rdata),
  .rresp(s_axi_ctrl_rresp),
  .soft_rst(soft_rst),
  .abandon(abandon),
  .clear(clear),
  .testing(testing),
  .enable(enable),
  .in0_frames(in0_frames),
  .in0_stalls(in0_stalls),
  .in0_starved(in0_starved),
  .in0_early(in0_early),
  .in0_late(in0_late),
  .in0_crc_value(in0_crc_value),
  .in0_high_water(in0_high_water),
  .in0_active(in0_active),
  .in0_waiting(in0_waiting),
  .in0_error(in0_error),
  .out0_frames(out0_frames),
  .out0_stalls(out0_stalls),
  .out0_aborted(out0_aborted),
  .out0_crc_value(out0_crc_value),
  .out0_high_water(out0_high_water),
  .out0_active(out0_active),
  .out0_waiting(out0_waiting),
  .out0_test_done(out0_test_done)
);
oneword core (
  .clk(clk), .rst(soft_rst),
  .in0_valid(in0_core_valid),
  .in0_ready(in0_core_ready),
  .in0_data(in0_core_data),
  .out0_valid(out0_core_valid),
  .out0_ready(out0_core_ready),
  .out0_data(out0_core_data)
);
endmodule
`default_nettype wire
