"""The Verilog that clocks a design in Icarus: sources and sinks with stalls, a memory, and what must never be unknown.

It drives before a rising edge of the clock and looks just before it, as harness.cpp does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dovetail.fpga.design import Design, MemoryPort
from dovetail.fpga.toolchain.simulate import DRAIN_CYCLES, quiet_cycles
from dovetail.hardware.arrays.layers import RATE_STEPS

RESET_CYCLES = 8
FILL_CYCLES = 2000
"""Cycles without a beat after which a design that nobody takes from is full."""
MEMORY_QUEUE = 1024
"""Requests to memory that may be under way."""


def write_bench(design: Design, sets: Mapping[str, int], frames: int, stall_seed: int | None, reset_at: int | None,
                unknown: bool) -> str:
    """The module `bench` for a design; `sets` counts the frames or weights of every input, by tensor.

    With `unknown`, wires whose value says nothing are unknown.
    """
    sources = [{"s": f"in{n}", "name": p.name, "top": p.data_bits - 1, "total": sets[p.tensor] * p.beats}
               for n, p in enumerate(design.inputs)]
    sinks = [{"s": f"out{n}", "name": p.name, "top": p.data_bits - 1, "total": frames * p.beats, "beats": p.beats}
             for n, p in enumerate(design.outputs)]
    memory = {} if design.memory is None else _memory(design, design.memory)
    coins = [str(port["s"]) for port in (*sources, *sinks)] + ["memory_request", "memory_serve"] * bool(memory)
    seed = 0 if stall_seed is None else 1 + stall_seed
    return _filled(BENCH, {
        "top": design.top, "stalls": int(seed > 0), "unknown": int(unknown), "reset_at": reset_at or 0, "reset": RESET_CYCLES,
        "fill": FILL_CYCLES, "quiet": quiet_cycles(design), "drain": DRAIN_CYCLES, "frames": frames,
        "streams": _each(SOURCE, sources) + _each(SINK, sinks), "memory": _filled(MEMORY, memory) if memory else "",
        "coins": "".join(f"  `COIN({name})\n" for name in coins),
        "pins": "".join(f",\n    .{port['name']}_{part}({port['s']}_{part})" for port in (*sources, *sinks)
                        for part in ("valid", "ready", "data")) + str(memory.get("pins", "")),
        "seeds": "".join(f"    `SEED({name}, {(seed * 977 + index * 7919) % 2**31})\n" for index, name in enumerate(coins)),
        "rest": _each("    rest_@s@;\n", [*sources, *sinks, *REST[bool(memory)]]),
        "drive": _each("    drive_@s@;\n", [*sources, *sinks, *REST[bool(memory)]]),
        "look": _each("    look_@s@;\n", [*sources, *sinks, *REST[bool(memory)]]),
        "sent": " && ".join(f"{port['s']}_moved == {port['total']}" for port in (*sources, *sinks)),
        "frame": " && ".join(f"{port['s']}_moved >= (done + 1) * {port['beats']}" for port in sinks)})


REST: Mapping[bool, list[dict[str, object]]] = {False: [], True: [{"s": "memory"}]}
"""What else is driven and looked at with a memory."""


def _filled(template: str, values: Mapping[str, object]) -> str:
    return re.sub(r"@(\w+)@", lambda match: str(values[match[1]]), template)


def _each(template: str, ports: list[dict[str, object]]) -> str:
    return "".join(_filled(template, port) for port in ports)


def _memory(design: Design, memory: MemoryPort) -> dict[str, object]:
    """What fills the memory's template."""
    image = len(design.files[memory.image].split())
    wires = [f"  {'reg' if inward else 'wire'} [{bits - 1}:0] memory_{part};\n" for part, bits, inward in memory.signals]
    if not memory.writes:
        wires += ["  wire memory_request_write = 0, memory_write_valid = 0;\n", "  reg memory_write_ready, memory_written;\n",
                  f"  wire [{memory.bytes * 8 - 1}:0] memory_write_data = 0;\n"]
    pins = "".join(f",\n    .{memory.name}_{part}(memory_{part})" for part, _, _ in memory.signals)
    return {"wires": "".join(wires), "pins": pins, "top": memory.bytes * 8 - 1, "image": memory.image, "filled": image,
            "size": max(image, memory.beats),
            "queue": MEMORY_QUEUE, "cost": RATE_STEPS * memory.bytes, "rate": int(memory.bytes_per_clock * RATE_STEPS),
            "latency": memory.latency_clocks, "parts": (1 << memory.masters) - 1}


BENCH = """\
`timescale 1ns/1ns
// A coin that keeps a rate for a random while.
`define COIN(s) integer s``_seed, s``_left, s``_rate; reg s``_stalls;
`define SEED(s, seed) s``_seed = seed; s``_left = 0; s``_rate = 0;
`define DRAW(s) s``_stalls = 0; if (STALLS) begin \\
    if (s``_left == 0) begin \\
      s``_left = $unsigned($random(s``_seed)) % ($unsigned($random(s``_seed)) % 8 ? 24 : 240) + 1; \\
      case ($unsigned($random(s``_seed)) % 5) \\
        0: s``_rate = 0; 1: s``_rate = 64; 2: s``_rate = 128; 3: s``_rate = 230; default: s``_rate = 256; \\
      endcase \\
    end \\
    s``_left = s``_left - 1; s``_stalls = $unsigned($random(s``_seed)) % 256 < s``_rate; \\
  end
// What lies on wires while nothing is valid.
`define IDLE(wires) (UNKNOWN ? 'bx : ~wires)
module bench;
  localparam STALLS = @stalls@, UNKNOWN = @unknown@;
  reg clk = 0, rst = 1;
  integer cycle = 0, quiet = 0, done = 0, first = 0;
  reg full, moved;
@coins@@streams@@memory@  @top@ dut (
    .clk(clk), .rst(rst)@pins@
  );
  task begin_anew; begin
    rst = 1; cycle = 0; quiet = 0; done = 0; first = 0; full = !STALLS;
@seeds@@rest@    repeat (@reset@) begin #1 clk = 1; #1 clk = 0; end
    rst = 0;
  end endtask
  task fail(input [8*60-1:0] why); begin
    $display("failed cycle %0d: %0s", cycle, why);
    $finish(0);
  end endtask
  task step; begin
    cycle = cycle + 1; moved = 0;
@drive@    #1;
@look@    #1 clk = 1;
    #1 clk = 0;
    if (quiet > @fill@) full = 1;
    if (moved) begin
      quiet = 0;
      while (done < @frames@ && @frame@) begin $display("frame %0d", cycle); done = done + 1; end
    end else quiet = quiet + 1;
    if (quiet > @quiet@ && !(@sent@)) fail("deadlock, no beat moved for long");
  end endtask
  initial begin
    begin_anew;
    if (@reset_at@) begin
      repeat (@reset_at@) step;
      $display("reset");
      begin_anew;
    end
    while (!(@sent@)) step;
    $display("done %0d %0d", cycle, first);
    repeat (@drain@) step;
    $finish(0);
  end
endmodule
"""

SOURCE = """\
  reg @s@_valid = 0, @s@_taken = 0;
  wire @s@_ready;
  reg [@top@:0] @s@_data, @s@_beats [0:@total@ - 1];
  integer @s@_moved;
  initial $readmemh("@s@.hex", @s@_beats);
  task rest_@s@; begin
    @s@_valid = 0; @s@_taken = 0; @s@_data = UNKNOWN ? 'bx : 0; @s@_moved = 0;
  end endtask
  task drive_@s@; begin
    if (@s@_taken) begin @s@_valid = 0; @s@_data = `IDLE(@s@_data); end
    if (!@s@_valid && @s@_moved < @total@) begin
      `DRAW(@s@)
      if (!(full && @s@_stalls)) begin @s@_valid = 1; @s@_data = @s@_beats[@s@_moved]; end
    end
  end endtask
  task look_@s@; begin
    if (^@s@_ready === 1'bx) fail("ready of @name@ is unknown");
    @s@_taken = @s@_valid && @s@_ready;
    if (@s@_taken) begin @s@_moved = @s@_moved + 1; moved = 1; end
  end endtask
"""

SINK = """\
  wire @s@_valid;
  reg @s@_ready = 0, @s@_waits = 0;
  wire [@top@:0] @s@_data;
  reg [@top@:0] @s@_held;
  integer @s@_moved, @s@_file;
  task rest_@s@; begin
    @s@_ready = 0; @s@_waits = 0; @s@_moved = 0; @s@_file = $fopen("@s@.bits", "w");
  end endtask
  task drive_@s@; begin
    `DRAW(@s@)
    @s@_ready = full && !@s@_stalls;
  end endtask
  task look_@s@; begin
    if (^@s@_valid === 1'bx) fail("valid of @name@ is unknown");
    if (@s@_waits && (!@s@_valid || @s@_data !== @s@_held)) fail("@name@ changed or withdrew a beat before it was taken");
    @s@_waits = @s@_valid && !@s@_ready; @s@_held = @s@_data;
    if (@s@_valid && @s@_ready) begin
      if (@s@_moved == @total@) fail("@name@ sends more beats than its frames hold");
      $fwrite(@s@_file, "%b\\n", @s@_data);
      if (first == 0) first = cycle;
      @s@_moved = @s@_moved + 1; moved = 1;
    end
  end endtask
"""

MEMORY = """\
@wires@  reg [@top@:0] memory_beats [0:@size@ - 1];
  initial $readmemh("@image@", memory_beats, 0, @filled@ - 1);
  integer asked, served, written, seen, credit, left;    // requests taken and served, writes done and told of
  reg serves, writes;
  integer burst_address [0:@queue@ - 1], burst_beats [0:@queue@ - 1], burst_from [0:@queue@ - 1], done_at [0:@queue@ - 1];
  reg burst_write [0:@queue@ - 1];
  task rest_memory; begin
    asked = 0; served = 0; written = 0; seen = 0; credit = 0; serves = 0; writes = 0;
    memory_request_ready = 0; memory_valid = 0; memory_data = UNKNOWN ? 'bx : 0; memory_write_ready = 0; memory_written = 0;
  end endtask
  task advance; begin
    credit = credit - @cost@;
    burst_address[served % @queue@] = burst_address[served % @queue@] + 1;
    burst_beats[served % @queue@] = burst_beats[served % @queue@] - 1;
    if (burst_beats[served % @queue@] == 0) served = served + 1;
  end endtask
  task drive_memory; begin
    `DRAW(memory_request)
    `DRAW(memory_serve)
    memory_request_ready = !memory_request_stalls && asked - served < @queue@;
    if (credit < @cost@) credit = credit + @rate@;
    serves = asked != served && credit >= @cost@ && !memory_serve_stalls;
    writes = serves && burst_write[served % @queue@];
    memory_write_ready = writes;
    memory_written = seen != written && done_at[seen % @queue@] <= cycle;
    if (memory_written) seen = seen + 1;
    memory_valid = 0; memory_data = `IDLE(memory_data);
    if (serves && !writes && burst_from[served % @queue@] <= cycle) begin
      memory_valid = @parts@; memory_data = memory_beats[burst_address[served % @queue@] % @size@];
      advance;
    end
  end endtask
  task look_memory; begin
    if (^{memory_request_valid, memory_write_valid} === 1'bx) fail("a handshake with memory is unknown");
    if (memory_write_valid && memory_write_ready) begin
      memory_beats[burst_address[served % @queue@] % @size@] = memory_write_data;
      left = burst_beats[served % @queue@];
      advance;
      if (left == 1) begin done_at[written % @queue@] = cycle + @latency@; written = written + 1; end
    end
    if (memory_request_valid && memory_request_ready) begin
      if (^{memory_request_address, memory_request_beats, memory_request_write} === 1'bx) fail("a request to memory is unknown");
      burst_address[asked % @queue@] = memory_request_address; burst_beats[asked % @queue@] = memory_request_beats;
      burst_from[asked % @queue@] = cycle + @latency@; burst_write[asked % @queue@] = memory_request_write;
      asked = asked + 1;
    end
  end endtask
"""
