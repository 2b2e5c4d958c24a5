// ---- tiny.v
// tiny: 1 engines, 3 adders, 0 branch FIFOs.
// Latency 59 clocks, one frame every 48 clocks.
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
// ---- tiny_node.v
// Conv node: 2 filters 2x2 pads 1,0,0,0
// 1x4x12 s8 -> 2x4x11 s8; one pixel of all channels per clock.
// 3 adders, 9 pipeline stages, 48 steps per frame, output FIFO of 15 beats.
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
reg [3:0] out_column;  // 0..10
reg [1:0] out_row;
reg until_output;
reg [7:0] pixel;
reg step_1;
reg [3:0] column;  // 0..11
reg [3:0] column_1;  // 0..11
reg [3:0] column_2;  // 0..11
reg step_2;
reg [7:0] pixel_2;
reg [7:0] lines_held;
reg [7:0] row0_column1;
reg [7:0] row0_column0;
reg [7:0] row1_column1;
reg [7:0] row1_column0;
reg row_inside_0_d1;
reg row_inside_0_d2;
reg row_inside_0_d3;
reg [7:0] x0_0_0;  // -128..127
reg [7:0] x0_0_1;  // -128..127
reg [7:0] x0_1_0;  // -128..127
reg [7:0] x0_1_1;  // -128..127
reg [9:0] x0_1_0_times_3;  // -384..381
reg [9:0] node_sum_1;  // -382..383
reg [10:0] node_sum_2;  // -766..764
reg [10:0] node_acc_0;  // -761..769
reg [8:0] node_acc_0_rounded;  // -190..192
reg [7:0] node_acc_0_clamped;  // -128..127
reg [8:0] valid;
reg left;
reg issued;
reg [3:0] credit;
reg may_step;
reg [7:0] lines_read;
wire fifo_valid;
wire [15:0] fifo_data;
wire step = may_step & in0_valid;
wire emit = step & (until_output == 1'd0);
wire row_inside_0 = out_row >= 2'd1;
assign in0_ready = may_step;
wire beat_valid = valid[8];
wire [15:0] beat = {8'd1, node_acc_0_clamped};
assign out_valid = fifo_valid;
assign out_data = fifo_data;
(* no_rw_check, ram_style = "distributed", ramstyle = "MLAB, no_rw_check" *)
reg [7:0] lines [0:11];
always @(posedge clk) begin
  if (step_2) lines[column_2] <= pixel_2;
  lines_read <= lines[column];
end
always @(posedge clk) begin
  pixel <= in0_data;
  column_1 <= column;
  column_2 <= column_1;
  pixel_2 <= pixel;
  lines_held <= lines_read;
  row_inside_0_d1 <= row_inside_0;
  row_inside_0_d2 <= row_inside_0_d1;
  row_inside_0_d3 <= row_inside_0_d2;
  x0_0_0 <= row_inside_0_d3 ? row0_column0 : 8'd0;
  x0_0_1 <= row_inside_0_d3 ? row0_column1 : 8'd0;
  x0_1_0 <= row1_column0;
  x0_1_1 <= row1_column1;
  x0_1_0_times_3 <= {{2{x0_1_0[7]}}, x0_1_0} + {x0_1_0[7], x0_1_0, 1'd0};
  node_sum_1 <= {{2{x0_0_0[7]}}, x0_0_0} - {x0_0_1[7], x0_0_1, 1'd0};
  node_sum_2 <= {x0_1_0_times_3[9], x0_1_0_times_3} + {node_sum_1[9], node_sum_1};
  node_acc_0 <= node_sum_2 + 11'd5;
  node_acc_0_rounded <= node_acc_0[10:2] + {8'd0, (node_acc_0[1] & (node_acc_0[2] | (|node_acc_0[0])))};
  node_acc_0_clamped <= (node_acc_0_rounded[8] & (node_acc_0_rounded[7] != 1'd1)) ? -8'd128 : ((~node_acc_0_rounded[8] & (|node_acc_0_rounded[7])) ? 8'd127 : node_acc_0_rounded[7:0]);
end
always @(posedge clk) if (step_2) begin
  row0_column1 <= lines_held;
  row0_column0 <= row0_column1;
  row1_column1 <= pixel_2;
  row1_column0 <= row1_column1;
end
always @(posedge clk)
  if (rst) begin
    out_column <= 4'd0;
    out_row <= 2'd0;
    until_output <= 1'd1;
    step_1 <= 1'd0;
    column <= 4'd0;
    step_2 <= 1'd0;
    valid <= 9'd0;
    left <= 1'd0;
    issued <= 1'd0;
    credit <= 4'd15;
    may_step <= 1'd1;
  end else begin
    if (emit) out_column <= (out_column == 4'd10) ? 4'd0 : (out_column + 4'd1);
    if (emit & (out_column == 4'd10)) out_row <= out_row + 2'd1;
    if (step) until_output <= (until_output == 1'd0) ? ((out_column == 4'd10) ? 1'd1 : 1'd0) : (until_output - 1'd1);
    step_1 <= step;
    if (step) column <= (column == 4'd11) ? 4'd0 : (column + 4'd1);
    step_2 <= step_1;
    valid <= {valid[7:0], emit};
    left <= fifo_valid & out_ready;
    issued <= emit;
    credit <= (credit + {3'd0, left}) - {3'd0, issued};
    may_step <= credit > 4'd2;
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
// ---- tiny_node_fifo.v
// FIFO of 15 beats of 16 bits.
module tiny_node_fifo (
  input wire clk,
  input wire rst,
  input wire in_valid,
  input wire [15:0] in_data,
  input wire out_ready,
  output wire out_valid,
  output wire [15:0] out_data
);
reg [3:0] waiting;
reg valid;
reg [3:0] write_at;  // 0..14
reg [3:0] read_at;  // 0..14
reg [15:0] word;
wire push = in_valid;
wire load = (waiting != 4'd0) & (~valid | out_ready);
assign out_valid = valid;
assign out_data = word;
(* no_rw_check, ram_style = "distributed", ramstyle = "MLAB, no_rw_check" *)
reg [15:0] beats [0:14];
always @(posedge clk) begin
  if (push) beats[write_at] <= in_data;
  if (load) word <= beats[read_at];
end
always @(posedge clk)
  if (rst) begin
    waiting <= 4'd0;
    valid <= 1'd0;
    write_at <= 4'd0;
    read_at <= 4'd0;
  end else begin
    waiting <= (waiting + {3'd0, push}) - {3'd0, load};
    valid <= load | (valid & ~out_ready);
    if (push) write_at <= (write_at == 4'd14) ? 4'd0 : (write_at + 4'd1);
    if (load) read_at <= (read_at == 4'd14) ? 4'd0 : (read_at + 4'd1);
  end
endmodule
