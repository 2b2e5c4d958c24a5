// What a simulator takes for the clock generator of a GW2A: the clock goes through, so a period outside is one of the design.
`default_nettype none
/* verilator lint_off UNUSEDPARAM */
/* verilator lint_off UNUSEDSIGNAL */
module rPLL #(
  parameter FCLKIN = "27",
  parameter DEVICE = "GW2A-18",
  parameter IDIV_SEL = 0,
  parameter FBDIV_SEL = 0,
  parameter ODIV_SEL = 8,
  parameter DYN_IDIV_SEL = "false",
  parameter DYN_FBDIV_SEL = "false",
  parameter DYN_ODIV_SEL = "false",
  parameter DYN_SDIV_SEL = 2,
  parameter DYN_DA_EN = "false",
  parameter PSDA_SEL = "0000",
  parameter DUTYDA_SEL = "1000",
  parameter CLKFB_SEL = "internal"
) (
  input wire CLKIN,
  input wire CLKFB,
  input wire RESET,
  input wire RESET_P,
  input wire [5:0] FBDSEL,
  input wire [5:0] IDSEL,
  input wire [5:0] ODSEL,
  input wire [3:0] PSDA,
  input wire [3:0] DUTYDA,
  input wire [3:0] FDLY,
  output wire CLKOUT,
  output wire LOCK
);
reg [4:0] left;
initial left = 5'd31;
assign CLKOUT = CLKIN;
assign LOCK = left == 5'd0;
always @(posedge CLKIN) left <= RESET ? 5'd31 : left - {4'd0, !LOCK};
endmodule
/* verilator lint_on UNUSEDSIGNAL */
/* verilator lint_on UNUSEDPARAM */
`default_nettype wire
