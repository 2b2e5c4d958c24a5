// The other direction of uart_rx.v.
`default_nettype none
// Bytes to a line.
module dovetail_uart_tx #(parameter [15:0] STEP = 16'd4096) (
  input wire clk,
  input wire rst,
  input wire valid,
  input wire [7:0] octet,
  output wire ready,
  output reg line
);
reg [9:0] bits;
reg [16:0] phase;
reg [3:0] left;
assign ready = left == 4'd0;
always @(posedge clk) begin
  line <= left == 4'd0 || bits[0];
  phase <= {1'b0, phase[15:0]} + {1'b0, STEP};
  if (rst) left <= 4'd0;
  else if (left == 4'd0) begin
    bits <= {1'b1, octet, 1'b0};
    phase <= 17'd0;
    if (valid) left <= 4'd10;
  end else if (phase[16]) begin
    bits <= {1'b1, bits[9:1]};
    left <= left - 4'd1;
  end
end
endmodule
`default_nettype wire
