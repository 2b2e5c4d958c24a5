"""Clock-accurate simulation of small hand-written designs with the real Verilator."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import MismatchError, ToolError, UsageError
from dovetail.fpga.design import Design, StreamPort
from dovetail.fpga.packing import beat_bytes, pack, unpack
from dovetail.fpga.toolchain.simulate import TOO_MANY, simulate, simulate_many
from dovetail.fpga.toolchain.simulator import Simulator
from dovetail.fpga.toolchain.verilate import build, bundle_files


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOVETAIL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def port(name: str, channels: int = 2, bits: int = 8, signed: bool = True, height: int = 3, width: int = 4) -> StreamPort:
    return StreamPort(name, name, channels, bits, signed, height, width)


def ports_text(data_bits: int, inputs: tuple[str, ...] = ("x",)) -> str:
    streams = [f"input wire {n}_valid, output wire {n}_ready, input wire [{data_bits - 1}:0] {n}_data" for n in inputs]
    return ", ".join(["input wire clk, input wire rst", *streams,
                      f"output wire y_valid, input wire y_ready, output wire [{data_bits - 1}:0] y_data"])


def passthrough(channels: int, bits: int, signed: bool) -> Design:
    """A register slice; the inner module has the same name in every design but another width."""
    width = channels * bits
    stage = f"""// module of one beat
module stage ({ports_text(width)});
reg full; reg [{width - 1}:0] kept;
assign x_ready = ~full | y_ready;
assign y_valid = full;
assign y_data = kept;
always @(posedge clk) begin
  if (rst) full <= 1'b0; else if (x_ready) full <= x_valid;
  if (x_ready) kept <= x_data;
end
`ifdef VERILATOR
final $display("high_water %m 1");
`endif
endmodule
"""
    pins = ", ".join(f".{n}({n})" for n in ("clk", "rst", *(f"{s}_{p}" for s in "xy" for p in ("valid", "ready", "data"))))
    top = f"module pass ({ports_text(width)});\nstage held ({pins});\nendmodule\n"
    return Design("pass", {"stage.v": stage, "pass.v": top}, (port("x", channels, bits, signed),),
                  (port("y", channels, bits, signed),))


def two_input_adder() -> Design:
    """Adds two streams of two signed 8-bit channels modulo 256, behind a four-beat FIFO."""
    text = f"""module add ({ports_text(16, ("a", "b"))});
reg [15:0] fifo [0:3];
reg [1:0] head, tail; reg [2:0] level;
wire take = a_valid & b_valid & (level < 3'd4);
wire give = y_valid & y_ready;
wire [7:0] low = a_data[7:0] + b_data[7:0];
wire [7:0] high = a_data[15:8] + b_data[15:8];
assign a_ready = take;
assign b_ready = take;
assign y_valid = level != 3'd0;
assign y_data = fifo[head];
always @(posedge clk) begin
  if (take) fifo[tail] <= {{high, low}};
  if (rst) begin head <= 2'd0; tail <= 2'd0; level <= 3'd0; end
  else begin
    if (take) tail <= tail + 2'd1;
    if (give) head <= head + 2'd1;
    level <= level + {{2'd0, take}} - {{2'd0, give}};
  end
end
endmodule
"""
    return Design("add", {"add.v": text}, (port("a"), port("b")), (port("y"),))


def table_lookup() -> Design:
    """Replaces every 8-bit value by an entry of a memory image."""
    image = "\n".join(f"{255 - i:02x}" for i in range(256)) + "\n"
    text = f"""module lookup ({ports_text(8)});
reg [7:0] table_of_values [0:255];
initial $readmemh("values.hex", table_of_values);
assign x_ready = y_ready;
assign y_valid = x_valid;
assign y_data = table_of_values[x_data];
endmodule
"""
    return Design("lookup", {"lookup.v": text, "values.hex": image}, (port("x", 1, 8, False),), (port("y", 1, 8, False),))


def one_bad(body: str) -> Design:
    counter = "reg [15:0] n;\nalways @(posedge clk) n <= rst ? 16'd0 : n + 16'd1;"
    text = f"module bad ({ports_text(16)});\n{counter}\n{body}\nendmodule\n"
    return Design("bad", {"bad.v": text}, (port("x"),), (port("y"),))


def values(of: StreamPort, frames: int, seed: int = 0) -> np.ndarray:
    low = -(1 << (of.bits - 1)) if of.signed else 0
    return np.random.default_rng(seed).integers(low, low + (1 << of.bits), (frames, of.channels, of.height, of.width))


WIDTHS = [(2, 8, True), (12, 8, True), (3, 32, True), (1, 32, False), (5, 13, True), (8, 8, False), (1, 4, True), (33, 1, False)]


@pytest.mark.verilator
@pytest.mark.parametrize("stall_seed", [None, 0, 1])
def test_every_width_passes_through_unchanged_in_one_bundle(stall_seed):
    designs = [passthrough(*width) for width in WIDTHS]
    inputs = [values(design.inputs[0], 3, seed) for seed, design in enumerate(designs)]
    results = simulate_many([(d, {"x": x}) for d, x in zip(designs, inputs, strict=True)], stall_seed=stall_seed)
    for x, result in zip(inputs, results, strict=True):
        np.testing.assert_array_equal(result.outputs["y"], x)
        assert result.high_water == {"held": 1}
        if stall_seed is None:
            assert result.first_output_cycle == 2
            assert result.frame_cycles == (13, 25, 37)
            assert result.cycles == 37
        else:
            assert result.cycles > 37


@pytest.mark.verilator
def test_a_bundle_and_single_simulations_agree_with_the_same_seed():
    adder = two_input_adder()
    jobs = [(adder, {"a": values(adder.inputs[0], 4, s), "b": values(adder.inputs[1], 4, s + 1)}) for s in (0, 5)]
    both = simulate_many([*jobs, (table_lookup(), {"x": values(table_lookup().inputs[0], 2)})], stall_seed=3)
    alone = [simulate(design, inputs, stall_seed=3) for design, inputs in jobs]
    for (_, inputs), many, single in zip(jobs, both, alone, strict=False):
        total = (inputs["a"] + inputs["b"] + 128) % 256 - 128
        np.testing.assert_array_equal(many.outputs["y"], total)
        np.testing.assert_array_equal(single.outputs["y"], total)
        assert many.frame_cycles == single.frame_cycles
    np.testing.assert_array_equal(both[2].outputs["y"], 255 - values(table_lookup().inputs[0], 2))


@pytest.mark.verilator
def test_every_installed_verilator_agrees(monkeypatch):
    adder = two_input_adder()
    inputs = {"a": values(adder.inputs[0], 4), "b": values(adder.inputs[1], 4)}
    preferred = simulate(adder, inputs, stall_seed=7)
    on_path = shutil.which("verilator")
    if on_path is not None:
        monkeypatch.setenv("DOVETAIL_VERILATOR", on_path)
    other = simulate(adder, inputs, stall_seed=7)
    assert other.frame_cycles == preferred.frame_cycles
    np.testing.assert_array_equal(other.outputs["y"], preferred.outputs["y"])


@pytest.mark.verilator
def test_stalls_differ_between_seeds_and_repeat_for_one():
    adder = two_input_adder()
    inputs = {"a": values(adder.inputs[0], 4), "b": values(adder.inputs[1], 4)}
    cycles = [simulate(adder, inputs, stall_seed=seed).cycles for seed in (0, 1, 2, 0)]
    assert cycles[0] == cycles[3]
    assert len(set(cycles)) == 3


@pytest.mark.verilator
def test_finished_frames_are_reported_one_by_one():
    adder = two_input_adder()
    heard: list[int] = []
    simulate(adder, {"a": values(adder.inputs[0], 4), "b": values(adder.inputs[1], 4)}, on_frame=heard.append)
    assert heard == [1, 2, 3, 4]


@pytest.mark.verilator
def test_flat_inputs_are_taken_as_channels():
    design = passthrough(2, 8, True)
    flat = Design(design.top, design.files, (port("x", height=1, width=1),), (port("y", height=1, width=1),))
    x = np.array([[1, -2], [-128, 127], [0, 5]], dtype=np.int8)
    np.testing.assert_array_equal(simulate(flat, {"x": x}).outputs["y"].reshape(3, 2), x)


@pytest.mark.verilator
def test_a_deadlock_tells_how_far_the_streams_came():
    design = one_bad("reg [2:0] k; always @(posedge clk) k <= rst ? 3'd0 : k + {2'd0, x_valid & x_ready};\n"
                     "assign x_ready = (k < 3'd5) & y_ready; assign y_valid = x_valid & (k < 3'd5); assign y_data = x_data;")
    message = (r"^simulation of bad: cycle \d+: deadlock, no beat moved for long; beats sent: x 5 of 24; "
               r"beats received: y 5 of 24; check FIFO depths and ready logic$")
    with pytest.raises(MismatchError, match=message):
        simulate(design, {"x": values(design.inputs[0], 2)})


@pytest.mark.verilator
def test_more_beats_than_the_frames_hold_are_refused():
    design = one_bad("assign x_ready = 1'b1; assign y_valid = ~rst; assign y_data = n;")
    message = (r"^simulation of bad: cycle \d+: output y sends more beats than its frames hold; beats sent: x \d+ of 12; "
               r"beats received: y 12 of 12; check counters and valid logic$")
    with pytest.raises(MismatchError, match=message):
        simulate(design, {"x": values(design.inputs[0], 1)})


@pytest.mark.verilator
def test_a_beat_that_changes_before_it_is_taken_breaks_the_protocol():
    design = one_bad("assign x_ready = y_ready; assign y_valid = x_valid; assign y_data = n;")
    message = (r"^simulation of bad: cycle \d+: output y changed or withdrew a beat before it was taken; "
               r"beats sent: x \d+ of 240; beats received: y \d+ of 240; hold it until ready$")
    with pytest.raises(MismatchError, match=message):
        simulate(design, {"x": values(design.inputs[0], 20)}, stall_seed=1)


@pytest.mark.verilator
def test_a_simulator_that_stays_gives_what_simulate_gives_to_any_number_of_threads():
    adder = two_input_adder()
    inputs = {name: values(port, 12, seed) for seed, (name, port) in enumerate(zip("ab", adder.inputs, strict=True))}
    expected = simulate(adder, inputs)
    simulator = Simulator(adder, build([adder]), 60.0)
    with closing(simulator):
        together = simulator.run(inputs)
        np.testing.assert_array_equal(together.outputs["y"], expected.outputs["y"])
        assert together.frame_cycles[0] == expected.frame_cycles[0]
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda i: simulator.run({n: x[i : i + 1] for n, x in inputs.items()}), range(12)))
        np.testing.assert_array_equal(np.concatenate([s.outputs["y"] for s in found]), expected.outputs["y"])
    with pytest.raises(ToolError, match="its process died"):
        simulator.run(inputs)


@pytest.mark.verilator
def test_a_simulator_that_stays_says_how_far_the_streams_of_a_deadlock_came():
    design = one_bad("reg [2:0] k; always @(posedge clk) k <= rst ? 3'd0 : k + {2'd0, x_valid & x_ready};\n"
                     "assign x_ready = (k < 3'd5) & y_ready; assign y_valid = x_valid & (k < 3'd5); assign y_data = x_data;")
    simulator = Simulator(design, build([design]), 60.0)
    with closing(simulator), pytest.raises(MismatchError, match=r"^simulation of bad: cycle \d+: deadlock, no beat moved"):
        simulator.run({"x": values(design.inputs[0], 2)})


@pytest.mark.verilator
def test_a_simulator_that_stays_watches_for_beats_that_nobody_asked_for():
    design = one_bad("assign x_ready = 1'b1; assign y_valid = ~rst; assign y_data = n;")
    simulator = Simulator(design, build([design]), 60.0)
    with closing(simulator):
        simulator.run({"x": values(design.inputs[0], 1)})
        assert simulator.process.wait(60) == TOO_MANY


@pytest.mark.parametrize(("inputs", "message"), [
    ({}, "simulation of pass: inputs are none; the design takes x"),
    ({"x": np.zeros((1, 2, 3, 5), int)}, "simulation of pass, input x: shape is (1, 2, 3, 5); needed is (frames, 2, 3, 4)"),
    ({"x": np.zeros((1, 3, 2, 4), int)}, "simulation of pass, input x: shape is (1, 3, 2, 4); needed is (frames, 2, 3, 4)"),
    ({"x": np.zeros((1, 2, 3, 4))}, "simulation of pass, input x: values are float64; integers are needed"),
    ({"x": np.full((1, 2, 3, 4), 128)}, "simulation of pass, input x: values span 128 to 128; the port carries -128 to 127"),
])
def test_wrong_inputs_are_named(inputs, message):
    with pytest.raises(UsageError) as caught:
        simulate(passthrough(2, 8, True), inputs)
    assert str(caught.value) == message


def test_inputs_of_different_length_are_refused():
    adder = two_input_adder()
    with pytest.raises(UsageError, match=r"inputs differ in frames, {'a': 1, 'b': 2}; give every input the same number"):
        simulate(adder, {"a": values(adder.inputs[0], 1), "b": values(adder.inputs[1], 2)})


def test_no_jobs_give_no_simulations():
    assert simulate_many([]) == []


def test_renaming_touches_modules_and_nothing_else():
    files = bundle_files([passthrough(1, 8, True), passthrough(2, 8, True)])
    assert "module d1_stage (" in files["design1/stage.v"]
    assert "d1_stage held (" in files["design1/pass.v"]
    assert "module of one beat" in files["design1/stage.v"]
    assert ".x_valid(x_valid)" in files["design1/pass.v"]


@given(st.data())
def test_packing_and_unpacking_are_inverse(data):
    signed = data.draw(st.booleans())
    shape = port("x", data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40)), signed, data.draw(st.integers(1, 3)), 2)
    frames = data.draw(st.integers(1, 3))
    x = values(shape, frames, data.draw(st.integers(0, 1000)))
    packed = pack(shape, x, frames)
    assert packed.shape == (frames * shape.beats, beat_bytes(shape.data_bits))
    np.testing.assert_array_equal(unpack(shape, packed, frames), x)


def test_channel_zero_sits_in_the_low_bits():
    shape = port("x", 3, 4, False, 1, 1)
    assert pack(shape, np.array([[1, 2, 3]]), 1).tolist() == [[0x21, 0x03]]
