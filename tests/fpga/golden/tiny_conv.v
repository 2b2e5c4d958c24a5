// ---- tiny.v
// tiny: 1 engines, 3 adders, 0 branch FIFOs.
// Latency 59 clocks, one frame every 48 clocks.
`default_nettype none
module tiny (
  input wire clk,
  input wire rst,
  input wire in0_valid,
  input wire [7:0] in0_data,
  input wire out0_ready,
  output wire in0_ready,
  output wire out0_valid,
  output wire [15:0] out0_data
);
wire x_to_node_0_valid;
wire x_to_node_0_ready;
wire [7:0] x_to_node_0_data;
assign x_to_node_0_valid = in0_valid;
assign x_to_node_0_data = in0_data;
assign in0_ready = x_to_node_0_ready;
tiny_node u_node (
  .clk(clk), .rst(rst),
  .in0_valid(x_to_node_0_valid),
  .in0_ready(x_to_node_0_ready),
  .in0_data(x_to_node_0_data),
  .out_valid(out0_valid),
  .out_ready(out0_ready),
  .out_data(out0_data)
);
endmodule
`default_nettype wire
// ---- tiny_node.v
// Conv node: 2 filters 2x2 pads 1,0,0,0
// 1x4x12 s8 -> 2x4x11 s8; one pixel of all channels per clock.
// 3 adders, 9 pipeline stages, 48 steps per frame, output FIFO of 18 beats.
`default_nettype none
module tiny_node (
  input wire clk,
  input wire rst,
  input wire in0_valid,
  input wire [7:0] in0_data,
  input wire out_ready,
  output wire in0_ready,
  output wire out_valid,
  output wire [15:0] out_data
);
reg step_1;
reg step_2;
reg step_3;
reg [3:0] out_column;  // 0..10
reg out_column_last;
reg row_ends;
reg [1:0] out_row;
reg out_row_last;
reg until_output;
reg arrived;
reg [7:0] pixel;
reg [7:0] pixel_d1;
reg [7:0] pixel_d2;
reg [3:0] column;  // 0..11
reg column_last;
reg [3:0] column_d1;  // 0..11
reg [3:0] column_d2;  // 0..11
reg [7:0] lines_held;
reg [7:0] row0_column1;
reg [7:0] row0_column0;
reg [7:0] row1_column1;
reg [7:0] row1_column0;
reg row_inside_0_d1;
reg [7:0] x0_0_0;  // -128..127
reg [7:0] x0_0_1;  // -128..127
reg [7:0] x0_1_0;  // -128..127
reg [7:0] x0_1_1;  // -128..127
reg [9:0] x0_1_0_times_3;  // -384..381
reg [9:0] node_sum_1;  // -382..383
reg [10:0] node_sum_2;  // -766..764
reg [10:0] node_acc_0;  // -759..771
reg [7:0] node_acc_0_clamped;  // -128..127
reg [6:0] valid;
reg left;
reg issuing;
reg issued;
reg [4:0] spare;  // -6..12
reg may_step;
reg [7:0] lines_read;
wire fifo_valid;
wire [15:0] fifo_data;
wire step = may_step & in0_valid;
wire emit = step_2 & arrived;
wire row_inside_0 = out_row != 2'd0;
assign in0_ready = may_step;
wire [8:0] node_acc_0_quotient = node_acc_0[10:2];  // -190..192
wire beat_valid = valid[6];
wire [15:0] beat = {8'd1, node_acc_0_clamped};
assign out_valid = fifo_valid;
assign out_data = fifo_data;
(* no_rw_check, ram_style = "distributed", ramstyle = "MLAB, no_rw_check" *)
reg [7:0] lines [0:11];
always @(posedge clk) begin
  if (step_3) lines[column_d2] <= pixel_d2;
  lines_read <= lines[column];
end
always @(posedge clk) begin
  pixel <= in0_data;
  pixel_d1 <= pixel;
  pixel_d2 <= pixel_d1;
  column_d1 <= column;
  column_d2 <= column_d1;
  lines_held <= lines_read;
  row_inside_0_d1 <= row_inside_0;
  x0_0_0 <= row_inside_0_d1 ? row0_column0 : 8'd0;
  x0_0_1 <= row_inside_0_d1 ? row0_column1 : 8'd0;
  x0_1_0 <= row1_column0;
  x0_1_1 <= row1_column1;
  x0_1_0_times_3 <= {{2{x0_1_0[7]}}, x0_1_0} + {x0_1_0[7], x0_1_0, 1'd0};
  node_sum_1 <= {{2{x0_0_0[7]}}, x0_0_0} - {x0_0_1[7], x0_0_1, 1'd0};
  node_sum_2 <= {x0_1_0_times_3[9], x0_1_0_times_3} + {node_sum_1[9], node_sum_1};
  node_acc_0 <= node_sum_2 + 11'd7;
  node_acc_0_clamped <= (node_acc_0_quotient[8] & (node_acc_0_quotient[7] != 1'd1)) ? -8'd128 : ((~node_acc_0_quotient[8] & (|node_acc_0_quotient[7])) ? 8'd127 : {node_acc_0_quotient[7:1], node_acc_0_quotient[0] & (|node_acc_0[1:0])});
end
always @(posedge clk) if (step_3) begin
  row0_column1 <= lines_held;
  row0_column0 <= row0_column1;
  row1_column1 <= pixel_d2;
  row1_column0 <= row1_column1;
end
always @(posedge clk)
  if (rst) begin
    step_1 <= 1'd0;
    step_2 <= 1'd0;
    step_3 <= 1'd0;
    out_column <= 4'd0;
    out_column_last <= 1'd0;
    row_ends <= 1'd0;
    out_row <= 2'd0;
    out_row_last <= 1'd0;
    until_output <= 1'd1;
    arrived <= 1'd0;
    column <= 4'd0;
    column_last <= 1'd0;
    valid <= 7'd0;
    left <= 1'd0;
    issuing <= 1'd0;
    issued <= 1'd0;
    spare <= 5'd12;
    may_step <= 1'd1;
  end else begin
    step_1 <= step;
    step_2 <= step_1;
    step_3 <= step_2;
    if (emit) out_column <= out_column_last ? 4'd0 : (out_column + 4'd1);
    if (emit) out_column_last <= out_column == 4'd9;
    row_ends <= emit & out_column_last;
    if (row_ends) out_row <= out_row + 2'd1;
    if (row_ends) out_row_last <= out_row == 2'd2;
    if (step_2) until_output <= arrived ? (out_column_last ? 1'd1 : 1'd0) : (until_output - 1'd1);
    if (step_2) arrived <= arrived ? (out_column_last ? 1'd0 : 1'd1) : (until_output == 1'd1);
    if (step_1) column <= column_last ? 4'd0 : (column + 4'd1);
    if (step_1) column_last <= column == 4'd10;
    valid <= {valid[5:0], emit};
    left <= fifo_valid & out_ready;
    issuing <= emit;
    issued <= issuing;
    spare <= (spare + {4'd0, left}) - {4'd0, issued};
    may_step <= ~spare[4];
  end
tiny_node_fifo fifo (
  .clk(clk), .rst(rst),
  .in_valid(beat_valid),
  .in_data(beat),
  .out_valid(fifo_valid),
  .out_ready(out_ready),
  .out_data(fifo_data)
);
endmodule
`default_nettype wire
// ---- tiny_node_fifo.v
// FIFO of 18 beats of 16 bits.
`default_nettype none
module tiny_node_fifo (
  input wire clk,
  input wire rst,
  input wire in_valid,
  input wire [15:0] in_data,
  input wire out_ready,
  output wire out_valid,
  output wire [15:0] out_data
);
reg [4:0] waiting;  // 0..18
reg some;
reg valid;
reg [4:0] write_at;  // 0..17
reg write_at_last;
reg [4:0] read_at;  // 0..17
reg read_at_last;
reg [15:0] word;
wire push = in_valid;
wire load = some & (~valid | out_ready);
wire [1:0] change = push ? 2'd1 : -2'd1;  // -1..1
assign out_valid = valid;
assign out_data = word;
(* no_rw_check, ram_style = "distributed", ramstyle = "MLAB, no_rw_check" *)
reg [15:0] beats [0:17];
always @(posedge clk) begin
  if (push) beats[write_at] <= in_data;
  if (load) word <= beats[read_at];
end
always @(posedge clk)
  if (rst) begin
    waiting <= 5'd0;
    some <= 1'd0;
    valid <= 1'd0;
    write_at <= 5'd0;
    write_at_last <= 1'd0;
    read_at <= 5'd0;
    read_at_last <= 1'd0;
  end else begin
    if (push ^ load) waiting <= waiting + {{3{change[1]}}, change};
    some <= push | (|waiting[4:1]) | (some & ~load);
    valid <= load | (valid & ~out_ready);
    if (push) write_at <= write_at_last ? 5'd0 : (write_at + 5'd1);
    if (push) write_at_last <= write_at == 5'd16;
    if (load) read_at <= read_at_last ? 5'd0 : (read_at + 5'd1);
    if (load) read_at_last <= read_at == 5'd16;
  end
endmodule
`default_nettype wire
