// What a simulator takes for the clock generator of an ECP5: the clock goes through, so a period outside is one of the design.
`default_nettype none
/* verilator lint_off UNUSEDPARAM */
module EHXPLLL #(
  parameter CLKI_DIV = 1,
  parameter CLKFB_DIV = 1,
  parameter CLKOP_DIV = 8,
  parameter CLKOP_CPHASE = 0,
  parameter FEEDBK_PATH = "CLKOP"
) (
  input wire CLKI,
  input wire CLKFB,
  input wire RST,
  input wire STDBY,
  input wire PHASESEL0,
  input wire PHASESEL1,
  input wire PHASEDIR,
  input wire PHASESTEP,
  input wire PHASELOADREG,
  input wire PLLWAKESYNC,
  input wire ENCLKOP,
  output wire CLKOP,
  output wire LOCK
);
reg [4:0] left;
initial left = 5'd31;
assign CLKOP = CLKI;
assign LOCK = left == 5'd0;
always @(posedge CLKI) left <= RST ? 5'd31 : left - {4'd0, !LOCK};
endmodule
/* verilator lint_on UNUSEDPARAM */
`default_nettype wire
