// Room for whole frames from an AXI4-Stream of words to a link, which moves bytes. A frame is passed on when it is complete.
`default_nettype none
// Words in, bytes out. A packet that ends with `tuser` was cut short and is forgotten.
module dovetail_frames_out #(parameter WORD_BYTES = 8, parameter WORDS = 2, parameter FRAMES = 1) (
  input wire clk,
  input wire rst,
  input wire forget,
  input wire tvalid,
  output wire tready,
  input wire [8*WORD_BYTES-1:0] tdata,
  input wire tlast,
  input wire tuser,
  output wire available,
  output wire octet_valid,
  output wire [7:0] octet,
  input wire take
);
localparam DEPTH = WORDS * FRAMES;
localparam ADDRESS = DEPTH > 1 ? $clog2(DEPTH) : 1;
localparam COUNT = $clog2(FRAMES + 1) + 1;
localparam [ADDRESS-1:0] END = DEPTH[ADDRESS-1:0] - 1'b1;
localparam [ADDRESS-1:0] LAST = WORDS[ADDRESS-1:0] - 1'b1;
localparam BYTE = $clog2(WORD_BYTES);
(* no_rw_check, ram_style = "block" *) reg [8*WORD_BYTES-1:0] memory [0:DEPTH-1];
reg [8*WORD_BYTES-1:0] read;
reg [BYTE-1:0] at;
reg [ADDRESS-1:0] begins, write_at, read_at, word;
reg [COUNT-1:0] frames;
reg reading, loaded;
wire [ADDRESS-1:0] after_write = write_at == END ? {ADDRESS{1'b0}} : write_at + 1'b1;
wire moves = tvalid && tready;
wire word_empty = take && loaded && (&at);
wire leaves = word_empty && word == LAST;
assign tready = frames != FRAMES[COUNT-1:0];
assign available = frames != {COUNT{1'b0}};
assign octet_valid = loaded;
assign octet = read[8*at +: 8];
always @(posedge clk) begin
  if (moves) memory[write_at] <= tdata;
  if (reading) read <= memory[read_at];
end
always @(posedge clk) begin
  if (rst || forget) begin
    at <= {BYTE{1'b0}};
    begins <= {ADDRESS{1'b0}};
    write_at <= {ADDRESS{1'b0}};
    read_at <= {ADDRESS{1'b0}};
    word <= {ADDRESS{1'b0}};
    frames <= {COUNT{1'b0}};
    reading <= 1'b0;
    loaded <= 1'b0;
  end else begin
    if (moves) write_at <= tlast && tuser ? begins : after_write;
    if (moves && tlast && !tuser) begins <= after_write;
    frames <= frames + {{COUNT-1{1'b0}}, moves && tlast && !tuser} - {{COUNT-1{1'b0}}, leaves};
    reading <= frames != {COUNT{1'b0}} && !loaded && !reading;
    if (reading) begin
      loaded <= 1'b1;
      read_at <= read_at == END ? {ADDRESS{1'b0}} : read_at + 1'b1;
    end
    if (take && loaded) at <= at + 1'b1;
    if (word_empty) begin
      loaded <= 1'b0;
      word <= leaves ? {ADDRESS{1'b0}} : word + 1'b1;
    end
  end
end
endmodule
`default_nettype wire
