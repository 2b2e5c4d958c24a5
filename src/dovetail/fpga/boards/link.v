// The board's end of the link shell: messages of 28 bytes, payload and CRC-32 (the host's end and the format: framing.py).
// Requests become accesses to AXI4-Lite registers and frames of streams; whatever is wrong is answered by a sentence.
`default_nettype none

module dovetail_link #(
  parameter INPUTS = 1,
  parameter OUTPUTS = 1,
  parameter [63:0] DESIGN = 64'd0,
  parameter [31:0] ROOM = 32'd1,
  parameter [32*INPUTS-1:0] IN_BYTES = 0,
  parameter [32*OUTPUTS-1:0] OUT_BYTES = 0,
  parameter SILENCE_BITS = 20
) (
  input wire clk,
  input wire rst,
  // bytes from and to the host
  input wire rx_valid,
  input wire [7:0] rx_octet,
  output wire tx_valid,
  output reg [7:0] tx_octet,
  input wire tx_ready,
  // frames to inputs and from outputs
  output wire [INPUTS-1:0] put,
  output wire [7:0] put_octet,
  output reg [INPUTS-1:0] commit,
  output reg [INPUTS-1:0] drop,
  input wire [INPUTS-1:0] full,
  input wire [OUTPUTS-1:0] available,
  input wire [OUTPUTS-1:0] octet_valid,
  input wire [8*OUTPUTS-1:0] octets,
  output wire [OUTPUTS-1:0] take,
  output reg forget,
  // registers
  output reg awvalid,
  output wire [11:0] awaddr,
  input wire awready,
  output reg wvalid,
  output wire [31:0] wdata,
  output wire [3:0] wstrb,
  input wire wready,
  input wire bvalid,
  input wire [1:0] bresp,
  output wire bready,
  output reg arvalid,
  output wire [11:0] araddr,
  input wire arready,
  input wire rvalid,
  input wire [31:0] rdata,
  input wire [1:0] rresp,
  output wire rready,
  // what an indicator may show
  output reg busy,
  output reg faulty
);
localparam [31:0] MAGIC = 32'h4B4C5644;  // "DVLK", its first byte lowest
localparam [7:0] DATA = 8'd1, FETCH = 8'd2, READ = 8'd3, WRITE = 8'd4, VALUE = 8'd5, RESET = 8'd6, FAULT = 8'd7, PROVIDE = 8'd8;
localparam [31:0] ROOM_ADDRESS = 32'h1000;

function [31:0] crc32(input [31:0] state, input [7:0] octet);
  integer i;
  begin
    crc32 = state ^ {24'd0, octet};
    for (i = 0; i < 8; i = i + 1) crc32 = {1'b0, crc32[31:1]} ^ (crc32[0] ? 32'hEDB88320 : 32'd0);
  end
endfunction

// What is wrong, by its sentence in fault_texts.hex.
localparam [3:0] FINE = 4'd0, NO_MAGIC = 4'd1, BAD_HEADER = 4'd2, UNKNOWN = 4'd3, BAD_PAYLOAD = 4'd4, LOST = 4'd5, FOREIGN = 4'd6,
  NO_REQUEST = 4'd7, NO_ROOM = 4'd8, REFUSED = 4'd9, SILENT = 4'd10;

// The receiver.
localparam [1:0] HEAD = 2'd0, PAYLOAD = 2'd1, CHECK = 2'd2, HUNT = 2'd3;
reg [1:0] state;
reg [223:0] head;
reg [4:0] got;
reg [28:0] left;
reg [31:0] crc, check, expected;
reg known, judged;
reg [63:0] access;
reg [3:0] refusal;
reg storing;
reg [SILENCE_BITS:0] silence;
wire [223:0] head_now = {rx_octet, head[223:8]};
wire [31:0] last_four = head_now[223:192];
wire [31:0] crc_now = crc32(crc, rx_octet);
wire [31:0] check_now = {rx_octet, check[31:8]};
wire [7:0] kind = head[47:40];
wire [15:0] port = head[63:48];
wire [63:0] design_id = head[127:64];
wire [31:0] sequence_number = head[159:128], length = head[191:160];
wire for_design = kind == DATA || kind == FETCH || kind == PROVIDE;
wire for_register = kind == READ || kind == WRITE;
wire stopped = silence[SILENCE_BITS];
wire [31:0] in_bytes [0:INPUTS-1];
wire [31:0] out_bytes [0:OUTPUTS-1];
wire [INPUTS-1:0] to_input;
wire [OUTPUTS-1:0] to_output;
genvar n;
generate
  for (n = 0; n < INPUTS; n = n + 1) begin : each_input
    assign in_bytes[n] = IN_BYTES[32*n +: 32];
    assign to_input[n] = port == n && length == in_bytes[n];
    assign put[n] = storing && port == n && state == PAYLOAD && rx_valid;
  end
  for (n = 0; n < OUTPUTS; n = n + 1) begin : each_output
    assign out_bytes[n] = OUT_BYTES[32*n +: 32];
    assign to_output[n] = port == n;
  end
endgenerate
assign put_octet = rx_octet;

// What the sender is asked for: the newest request, and the newest fault.
reg asked, at_fault;
reg [7:0] asked_kind;
reg [OUTPUTS-1:0] asked_output;
reg [63:0] asked_access;
reg [3:0] fault;
wire answers, confesses;  // the sender begins with one of them
wire refuses;             // a register refused an access

task blame(input [3:0] what);
  begin
    fault <= what;
    at_fault <= 1'b1;
    known <= 1'b0;
    if (storing) drop <= to_input;
    storing <= 1'b0;
  end
endtask

task begin_head;
  begin
    state <= HEAD;
    got <= 5'd0;
    crc <= 32'hFFFFFFFF;
  end
endtask

always @(posedge clk) begin
  commit <= {INPUTS{1'b0}};
  drop <= {INPUTS{1'b0}};
  forget <= 1'b0;
  judged <= 1'b1;
  if (answers) asked <= 1'b0;
  if (confesses) at_fault <= 1'b0;
  silence <= rx_valid || (state == HEAD && got == 5'd0) || stopped ? {SILENCE_BITS+1{1'b0}} : silence + 1'b1;
  if (rst) begin
    begin_head;
    known <= 1'b1;
    expected <= 32'd0;
    asked <= 1'b0;
    at_fault <= 1'b0;
    storing <= 1'b0;
    silence <= {SILENCE_BITS+1{1'b0}};
  end else if (stopped) begin
    if (state != HUNT) blame(SILENT);
    begin_head;
  end else if (!judged) begin  // the clock after a header, long before the next byte
    refusal <= kind == VALUE || kind == FAULT || kind == PROVIDE || (for_register && length != 32'd8)
               || (kind == DATA && to_input == {INPUTS{1'b0}}) || (kind == FETCH && to_output == {OUTPUTS{1'b0}}) ? NO_REQUEST
               : kind == DATA && (to_input & full) != {INPUTS{1'b0}} ? NO_ROOM : FINE;
    if (for_design && design_id != DESIGN) refusal <= FOREIGN;
    storing <= kind == DATA && design_id == DESIGN && to_input != {INPUTS{1'b0}} && (to_input & full) == {INPUTS{1'b0}}
               && !(known && sequence_number != expected);
  end else if (rx_valid) case (state)
    HEAD: begin
      head <= head_now;
      got <= got + 5'd1;
      if (got < 5'd24) crc <= crc_now;
      if (got == 5'd3 && last_four != MAGIC) begin
        blame(NO_MAGIC);
        state <= HUNT;
      end
      if (got == 5'd27) begin
        left <= head_now[188:160];
        crc <= 32'hFFFFFFFF;
        got <= 5'd0;
        judged <= 1'b0;
        state <= head_now[191:160] == 32'd0 ? CHECK : PAYLOAD;
        if (last_four != ~crc || head_now[39:32] != 8'd1 || head_now[47:40] == 8'd0 || head_now[47:40] > PROVIDE
            || head_now[191:160] > 32'h10000000) begin
          blame(last_four != ~crc ? BAD_HEADER : UNKNOWN);
          judged <= 1'b1;
          state <= HUNT;
        end
      end
    end
    PAYLOAD: begin
      crc <= crc_now;
      access <= {rx_octet, access[63:8]};
      left <= left - 29'd1;
      if (left == 29'd1) state <= CHECK;
    end
    CHECK: begin
      check <= check_now;
      got <= got + 5'd1;
      if (got == 5'd3) begin
        begin_head;
        expected <= sequence_number + 32'd1;
        known <= 1'b1;
        storing <= 1'b0;
        if (check_now != ~crc) begin
          blame(BAD_PAYLOAD);
          state <= HUNT;
        end else if (known && sequence_number != expected) blame(LOST);
        else if (refusal != FINE) begin
          fault <= refusal;
          at_fault <= 1'b1;
        end else if (kind == DATA) commit <= to_input;
        else begin
          asked <= 1'b1;
          asked_kind <= kind;
          asked_output <= to_output;
          asked_access <= access;
          forget <= kind == RESET;
        end
      end
    end
    HUNT: begin
      head <= head_now;
      if (last_four == MAGIC) begin
        state <= HEAD;
        got <= 5'd4;
        crc <= crc32(crc32(crc32(crc32(32'hFFFFFFFF, MAGIC[7:0]), MAGIC[15:8]), MAGIC[23:16]), MAGIC[31:24]);
      end
    end
  endcase
  if (refuses) begin
    fault <= REFUSED;
    at_fault <= 1'b1;
  end
end

// The sender.
localparam [3:0] IDLE = 4'd0, ACCESS = 4'd1, LOOK_UP = 4'd2, SENTENCE = 4'd3, LENGTH = 4'd4, SEND_HEAD = 4'd5, SEND_HEAD_CRC = 4'd6,
  SEND_PAYLOAD = 4'd7, SEND_CRC = 4'd8;
reg [3:0] doing;
reg [7:0] out_kind;
reg [191:0] out_head;
reg [31:0] out_sequence, out_crc, out_left;
reg [63:0] value;
reg [OUTPUTS-1:0] from_output;
reg [4:0] sent;
reg [3:0] sentence;
reg [6:0] letter_at;
reg [7:0] letter;
(* ram_style = "block" *) reg [7:0] texts [0:2047];
initial $readmemh("fault_texts.hex", texts);
always @(posedge clk) letter <= texts[{sentence, letter_at}];

wire fetched = (available & asked_output) != {OUTPUTS{1'b0}};
wire idle = doing == IDLE;
wire outside = asked_access[31:12] != 20'd0;
wire about_room = asked_kind == READ && asked_access[31:0] == ROOM_ADDRESS;
wire may_answer = idle && asked && !at_fault && !refuses;
assign confesses = idle && at_fault;
assign answers = may_answer && (asked_kind != FETCH || fetched);
reg refused;
assign refuses = refused;
assign awaddr = value[11:0];
assign araddr = value[11:0];
assign wdata = value[63:32];
assign wstrb = 4'hF;
assign bready = doing == ACCESS;
assign rready = doing == ACCESS;

reg [15:0] fetched_port;
reg [31:0] fetched_bytes;
reg [7:0] fetched_octet;
integer k;
always @* begin
  fetched_port = 16'd0;
  fetched_bytes = 32'd0;
  fetched_octet = 8'd0;
  for (k = 0; k < OUTPUTS; k = k + 1) begin
    if (asked_output[k]) begin
      fetched_port = k[15:0];
      fetched_bytes = OUT_BYTES[32*k +: 32];
    end
    if (from_output[k]) fetched_octet = octets[8*k +: 8];
  end
end

wire fetch_waits = out_kind == DATA && (octet_valid & from_output) == {OUTPUTS{1'b0}};
assign tx_valid = doing == SEND_HEAD || doing == SEND_HEAD_CRC || doing == SEND_CRC || (doing == SEND_PAYLOAD && !fetch_waits);
wire moves = tx_valid && tx_ready;
assign take = from_output & {OUTPUTS{moves && doing == SEND_PAYLOAD && out_kind == DATA}};
always @* case (doing)
  SEND_HEAD: tx_octet = out_head[7:0];
  SEND_PAYLOAD: tx_octet = out_kind == DATA ? fetched_octet : out_kind == VALUE ? value[7:0] : letter;
  default: tx_octet = ~out_crc[7:0];
endcase

task send(input [7:0] what, input [15:0] of_port, input [63:0] of_design, input [31:0] bytes);
  begin
    out_kind <= what;
    out_head <= {bytes, out_sequence, of_design, of_port, what, 8'd1, MAGIC};
    out_left <= bytes;
    out_sequence <= out_sequence + 32'd1;
    out_crc <= 32'hFFFFFFFF;
    sent <= 5'd0;
    doing <= SEND_HEAD;
  end
endtask

always @(posedge clk) begin
  refused <= 1'b0;
  busy <= doing != IDLE || state != HEAD || got != 5'd0;
  if (awready) awvalid <= 1'b0;
  if (wready) wvalid <= 1'b0;
  if (arready) arvalid <= 1'b0;
  if (rst) begin
    doing <= IDLE;
    out_sequence <= 32'd0;
    awvalid <= 1'b0;
    wvalid <= 1'b0;
    arvalid <= 1'b0;
    faulty <= 1'b0;
  end else case (doing)
    IDLE: begin
      sentence <= fault;
      letter_at <= 7'd0;
      if (confesses) begin
        doing <= LOOK_UP;
        faulty <= 1'b1;
      end else if (answers) begin
        value <= asked_access;
        from_output <= asked_output;
        if (asked_kind == FETCH) send(DATA, fetched_port, DESIGN, fetched_bytes);
        else if (asked_kind == RESET) begin
          value <= 64'd0;
          send(VALUE, 16'd0, 64'd0, 32'd8);
        end else if (about_room) begin
          value <= {ROOM, ROOM_ADDRESS};
          send(VALUE, 16'd0, 64'd0, 32'd8);
        end else if (outside) refused <= 1'b1;
        else begin
          doing <= ACCESS;
          awvalid <= asked_kind == WRITE;
          wvalid <= asked_kind == WRITE;
          arvalid <= asked_kind == READ;
        end
      end
    end
    ACCESS: if (bvalid || rvalid) begin
      if (rvalid) value[63:32] <= rdata;
      if ((rvalid ? rresp : bresp) == 2'd0) send(VALUE, 16'd0, 64'd0, 32'd8);
      else begin
        refused <= 1'b1;
        doing <= IDLE;
      end
    end
    LOOK_UP: doing <= SENTENCE;
    SENTENCE: doing <= LENGTH;
    LENGTH: begin  // the first byte of a sentence is its length
      send(FAULT, 16'd0, 64'd0, {24'd0, letter});
      letter_at <= 7'd1;
    end
    SEND_HEAD: if (moves) begin
      out_head <= {8'd0, out_head[191:8]};
      out_crc <= crc32(out_crc, tx_octet);
      sent <= sent + 5'd1;
      if (sent == 5'd23) begin
        sent <= 5'd0;
        doing <= SEND_HEAD_CRC;
      end
    end
    SEND_HEAD_CRC: if (moves) begin
      out_crc <= {8'hFF, out_crc[31:8]};
      sent <= sent + 5'd1;
      if (sent == 5'd3) begin
        sent <= 5'd0;
        out_crc <= 32'hFFFFFFFF;
        doing <= SEND_PAYLOAD;
      end
    end
    SEND_PAYLOAD: if (moves) begin
      out_crc <= crc32(out_crc, tx_octet);
      value <= {8'd0, value[63:8]};
      letter_at <= letter_at + 7'd1;
      out_left <= out_left - 32'd1;
      if (out_left == 32'd1) doing <= SEND_CRC;
    end
    SEND_CRC: if (moves) begin
      out_crc <= {8'hFF, out_crc[31:8]};
      sent <= sent + 5'd1;
      if (sent == 5'd3) doing <= IDLE;
    end
    default: doing <= IDLE;
  endcase
end
endmodule
`default_nettype wire
