// Packets of 1 words of 512 bits to 6 pixels of 24 bits.
`default_nettype none
module oneword_axi_in0_frame (
  input wire clk,
  input wire rst,
  input wire in_valid,
  input wire [511:0] in_data,
  input wire in_last,
  input wire may_start,
  input wire out_ready,
  output wire out_valid,
  output wire [23:0] out_data,
  output wire in_ready,
  output wire active,
  output wire starved,
  output wire taken,
  output wire done,
  output wire early,
  output wire late
);
reg started;
reg [2:0] pixel;  // 0..5
reg pixel_last;
reg valid;
reg [6:0] level;  // 0..66
reg [527:0] held;
reg filling;
reg dropping;
wire wanted = ~dropping & (started | may_start);
wire offered = filling | (in_valid & wanted);
wire pop = valid & out_ready;
wire ends = pop & pixel_last;
wire [6:0] after = ends ? 7'd0 : (pop ? (level - 7'd3) : level);  // 0..66
wire [527:0] kept = ends ? 528'd0 : (pop ? {24'd0, held[527:24]} : held);
wire takes = ~(ends ? 1'd0 : (pop ? (level >= 7'd6) : (level >= 7'd3)));
wire push = offered & takes;
wire [511:0] fresh = filling ? 512'd0 : in_data;
wire [1:0] place = after[1:0];  // 0..2
wire [519:0] lifted_0 = place[0] ? {fresh, 8'd0} : {8'd0, fresh};
wire [527:0] lifted_1 = place[1] ? {lifted_0[511:0], 16'd0} : {8'd0, lifted_0};
assign out_valid = valid;
assign out_data = held[23:0];
wire from_packet = push & ~filling;
wire ends_early = 1'd0;
wire ends_late = from_packet & ~in_last;
assign in_ready = dropping | (takes & ~filling & wanted);
assign active = started | filling | dropping;
assign starved = started & takes & ~offered;
assign taken = from_packet;
assign done = push;
assign early = ends_early;
assign late = ends_late;
always @(posedge clk)
  if (rst) begin
    started <= 1'd0;
    pixel <= 3'd0;
    pixel_last <= 1'd0;
    valid <= 1'd0;
    level <= 7'd0;
    held <= 528'd0;
    filling <= 1'd0;
    dropping <= 1'd0;
  end else begin
    if (push) started <= 1'd0;
    if (pop) pixel <= pixel_last ? 3'd0 : (pixel + 3'd1);
    if (pop) pixel_last <= pixel == 3'd4;
    valid <= push ? 1'd1 : ~takes;
    level <= push ? (after + 7'd64) : after;
    held <= push ? (kept | lifted_1) : kept;
    filling <= ends_early ? 1'd1 : (push ? 1'd0 : filling);
    dropping <= ends_late ? 1'd1 : ((in_valid & in_last) ? 1'd0 : dropping);
  end
endmodule
`default_nettype wire
