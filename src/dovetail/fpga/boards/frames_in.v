// Room for whole frames from a link, which moves bytes, to an AXI4-Stream of words. A frame is passed on when it is complete.
`default_nettype none
// Bytes in, words out. `commit` keeps the bytes since the last commit as a frame, `drop` forgets them.
module dovetail_frames_in #(parameter WORD_BYTES = 8, parameter WORDS = 2, parameter FRAMES = 1) (
  input wire clk,
  input wire rst,
  input wire forget,
  input wire put,
  input wire [7:0] octet,
  input wire commit,
  input wire drop,
  output wire full,
  output reg tvalid,
  input wire tready,
  output reg [8*WORD_BYTES-1:0] tdata,
  output wire tlast
);
localparam DEPTH = WORDS * FRAMES;
localparam ADDRESS = DEPTH > 1 ? $clog2(DEPTH) : 1;
localparam COUNT = $clog2(FRAMES + 1) + 1;
localparam [ADDRESS-1:0] END = DEPTH[ADDRESS-1:0] - 1'b1;
localparam [ADDRESS-1:0] LAST = WORDS[ADDRESS-1:0] - 1'b1;
localparam BYTE = $clog2(WORD_BYTES);
(* no_rw_check, ram_style = "block" *) reg [8*WORD_BYTES-1:0] memory [0:DEPTH-1];
reg [8*WORD_BYTES-9:0] held;
reg [BYTE-1:0] at;
reg [ADDRESS-1:0] begins, write_at, read_at, word;
reg [COUNT-1:0] frames;
reg reading;
wire [ADDRESS-1:0] after_write = write_at == END ? {ADDRESS{1'b0}} : write_at + 1'b1;
wire word_full = put && (&at);
wire taken = tvalid && tready;
wire leaves = taken && tlast;
assign full = frames == FRAMES[COUNT-1:0];
assign tlast = word == LAST;
always @(posedge clk) begin
  if (word_full) memory[write_at] <= {octet, held};
  if (reading) tdata <= memory[read_at];
end
always @(posedge clk) begin
  if (put) held <= {octet, held[8*WORD_BYTES-9:8]};
  if (rst || forget) begin
    at <= {BYTE{1'b0}};
    begins <= {ADDRESS{1'b0}};
    write_at <= {ADDRESS{1'b0}};
    read_at <= {ADDRESS{1'b0}};
    word <= {ADDRESS{1'b0}};
    frames <= {COUNT{1'b0}};
    tvalid <= 1'b0;
    reading <= 1'b0;
  end else begin
    if (put) at <= at + 1'b1;
    if (word_full) write_at <= after_write;
    if (commit) begins <= write_at;
    if (drop) begin
      write_at <= begins;
      at <= {BYTE{1'b0}};
    end
    frames <= frames + {{COUNT-1{1'b0}}, commit} - {{COUNT-1{1'b0}}, leaves};
    reading <= frames != {COUNT{1'b0}} && !tvalid && !reading;
    if (reading) begin
      tvalid <= 1'b1;
      read_at <= read_at == END ? {ADDRESS{1'b0}} : read_at + 1'b1;
    end
    if (taken) begin
      tvalid <= 1'b0;
      word <= tlast ? {ADDRESS{1'b0}} : word + 1'b1;
    end
  end
end
endmodule
`default_nettype wire
