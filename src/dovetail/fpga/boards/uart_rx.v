// A serial line of 8 data bits, no parity, one stop bit. STEP is 65,536 times the bits of a clock: any rate fits any clock.
`default_nettype none
// Bytes from a line. A byte whose stop bit is missing is dropped.
module dovetail_uart_rx #(parameter [15:0] STEP = 16'd4096) (
  input wire clk,
  input wire rst,
  input wire line,
  output reg valid,
  output reg [7:0] octet
);
reg [2:0] seen;
reg [16:0] phase;
reg [3:0] left;
reg armed;
wire level = seen[2];
always @(posedge clk) begin
  seen <= {seen[1:0], line};
  valid <= 1'b0;
  phase <= {1'b0, phase[15:0]} + {1'b0, STEP};
  if (rst) begin
    seen <= 3'b111;
    left <= 4'd0;
    armed <= 1'b0;
  end else if (left == 4'd0) begin
    armed <= level;
    if (armed && !level) begin
      left <= 4'd10;
      phase <= 17'h08000;  // the first sample is half a bit away
    end
  end else if (phase[16]) begin
    left <= left - 4'd1;
    if (left == 4'd10) begin
      if (level) left <= 4'd0;  // a spike, no start bit
    end else if (left == 4'd1) valid <= level;
    else octet <= {level, octet[7:1]};
  end
end
endmodule
`default_nettype wire
