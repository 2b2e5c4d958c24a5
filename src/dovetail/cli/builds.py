"""Commands that make a build folder, and commands on one."""

from __future__ import annotations

import argparse
from pathlib import Path

from dovetail.cli import options
from dovetail.partition.plan import WIDTHS


def add_commands(commands: options.Commands) -> None:
    """`compile`, `verify`, `run`, `selftest`, `prove`, `power`, `synth`, `export`, `bitstream`, `flash`, `report`, `serve`."""
    build = commands.add("compile", "plan, generate RTL and sub-models, verify, and report, into one folder",
                         "dovetail compile model.onnx -p tx2-c10gx --calibration images.npz -o build/model")
    options.add_model(build)
    options.add_planning(build)
    options.add_numbers(build)
    options.add_saved_plan(build)
    build.add_argument("-o", "--output", type=Path, required=True, help="the build folder to write")
    build.add_argument("--frames", type=int, help="frames to verify: calibration samples, then seeded random ones (default: 64, "
                       "or as many as are simulated in a minute, at least 2)")
    build.add_argument("--bus-bits", type=int, choices=WIDTHS["bus_bits"], default=64,
                       help="width of the hardware's AXI4-Stream ports (default: %(default)s)")
    build.add_argument("--memory-bits", type=int, metavar="BITS",
                       help="width of the AXI4 port to memory, where reusable engines have one: 128, 64 or 32 "
                            "(default: that of their beats, 128)")
    build.add_argument("--host-pins", type=int, choices=WIDTHS["host_pins"], metavar="PINS",
                       help="write the hardware also behind a port of so many pins each way, as FiC's host has 4 "
                            "(fpga/PART/pins; 1, 2, 4, 8, 16 or 32)")
    build.add_argument("--loaded", action="append", default=[], metavar="LAYER",
                       help="give a folded layer of LQ codes memories that the host fills, so that `run --weights` changes its "
                            "weights without building again; repeatable, 'all' for every layer that can (default: ROM)")
    build.add_argument("--no-verify", action="store_true", help="skip the run against the reference")

    verify = commands.on_build("verify", "run a build on its devices and compare every boundary tensor with the reference",
                               "dovetail verify build/model --frames 64 --json -")
    verify.add_argument("--frames", type=int, help="frames to run: up to 64 stored samples, then seeded random ones (default: 64 "
                        "or as many as are simulated in a minute, at least 2)")
    verify.add_argument("--icarus", action="store_true", help="run 2 frames of each simulated FPGA part in Icarus Verilog, too: "
                        "from an unknown state, and from a random one with a reset in the middle of a frame (slow)")
    add_weights(verify)

    run = commands.on_build("run", "inference over the plan's devices", "dovetail run build/model -i x.npy -o y.npy")
    run.add_argument("-i", "--input", type=Path, required=True,
                     help=".npy or .npz (key 'x' or the input's name) of float frames")
    run.add_argument("-o", "--output", type=Path, required=True, help=".npy for one output, .npz for several")
    run.add_argument("--pipeline", action="store_true", help="run all devices at the same time, frames in a pipeline")
    run.add_argument("--in-flight", type=int, metavar="N", help="with --pipeline: frames under way at most (default: as many as "
                     "the plan's latency has intervals and two more, at least 8)")
    run.add_argument("--trace", type=Path, metavar="FILE.json", help="write when every stage and transfer began and ended, plan "
                     "beside measurement, for ui.perfetto.dev")
    run.add_argument("--on-failure", choices=("stop", "fallback"), default="stop",
                     help="what to do when a device dies, hangs or answers wrongly: stop, or compute its part on the CPU by the "
                          "integer reference and go on (default: %(default)s)")
    run.add_argument("--timeout", type=float, metavar="SECONDS", help="after which a device that does not answer has failed; "
                     "with --pipeline or --on-failure fallback (default: 3600)")
    add_weights(run)
    add_boards(run)

    synth = commands.on_build("synth", "count the FPGA part's resources with an open synthesizer",
                              "dovetail synth build/model --family ecp5")
    synth.add_argument("--family", help="ecp5, gw2a, xcu, xcup, cyclonev, cyclone10gx (default: the board's)")
    synth.add_argument("--route", action="store_true", help="place and route it too, with its AXI shell, which tells its clock "
                       "(ecp5 and gw2a, by nextpnr)")
    synth.add_argument("--seeds", type=int, metavar="N", help="with --route: from so many beginnings, of which the median "
                       "counts (default: 1)")

    export = commands.on_build("export", "write FPGA parts as projects for a vendor's tool or the open one, or all parts as ONNX",
                               "dovetail export build/model --vendor quartus -o projects/model")
    export.add_argument("--vendor", required=True, choices=("quartus", "vivado", "oss", "onnx"),
                        help="quartus (Cyclone), vivado (UltraScale, UltraScale+), oss (ECP5: Yosys, nextpnr, Project Trellis), "
                             "onnx (every part, whatever its device, for ONNX Runtime alone; pieces.json joins them)")
    export.add_argument("--part", help="the device's order code (default: the board's)")
    export.add_argument("-o", "--output", type=Path, required=True, help="the folder to write, a project per hardware part")

    chip = commands.on_build("bitstream", "make the whole chip of a board with a serial line",
                             "dovetail bitstream build/model -o chips")
    add_chip(chip)
    chip.add_argument("-o", "--output", type=Path, help="the folder to write, PART.bit (ECP5) or PART.fs (GW2A) each "
                      "(default: BUILD/bitstream)")
    flash = commands.on_build("flash", "make it and put it on the board", "dovetail flash build/model")
    add_chip(flash)
    flash.add_argument("--keep", action="store_true", help="into the board's flash memory, to stay there without power")

    trial = commands.on_build("selftest", "drive the FPGA parts behind their AXI ports, in simulation, as a board would be",
                              "dovetail selftest build/model --stall-seed 1")
    trial.add_argument("--frames", type=int, default=8, help="random frames to compute (default: %(default)s)")
    trial.add_argument("--stall-seed", type=int, metavar="N", help="let both ends of every stream pause at random")
    trial.add_argument("--trace", type=Path, metavar="FILE.fst", help="draw every signal into a waveform file; slow and large")
    add_boards(trial)

    prove = commands.on_build("prove", "prove the FPGA parts' Verilog equal to the integers for every input, engine by engine",
                              "dovetail prove build/model --limit 60")
    prove.add_argument("--limit", type=float, default=60.0, metavar="S",
                       help="seconds that one statement may take; a longer one is bounded (default: %(default)s)")

    power = commands.on_build("power", "count how often the FPGA parts toggle on the build's own images, and what that costs",
                              "dovetail power build/model --frames 16")
    power.add_argument("--frames", type=int, default=16, help="stored samples to simulate (default: %(default)s)")

    commands.on_build("report", "render the build's HTML report again from what is known by now",
                      "dovetail report build/model")
    server = commands.add("serve", "answer inference requests over HTTP (Open Inference Protocol v2), each build as a model",
                          "dovetail serve build/model other=build/model2 --port 8000")
    server.add_argument("builds", nargs="+", metavar="BUILD", help="a build folder, or NAME=FOLDER (default name: the folder's)")
    options.add_trust(server)
    server.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s, this machine alone)")
    server.add_argument("--port", type=int, default=8000, help="0 takes a free one (default: %(default)s)")
    server.add_argument("--queue", type=int, default=64, metavar="N",
                        help="requests of a model that may wait; more are refused with 503 (default: %(default)s)")
    server.add_argument("--max-batch", type=int, default=32, metavar="N",
                        help="frames of one request, and of waiting requests computed in one call (default: %(default)s)")
    server.add_argument("--workers", type=int, default=1, metavar="N", help="processes per model (default: %(default)s)")
    server.add_argument("--deadline-s", type=float, default=60.0, metavar="S",
                        help="a request not answered after so long gets 504; one may state less (default: %(default)s)")
    server.add_argument("--hang-s", type=float, default=30.0, metavar="S",
                        help="a worker that computes a batch for longer is killed, and the batch repeated (default: %(default)s)")
    server.add_argument("--max-body-mb", type=float, default=64.0, metavar="MB",
                        help="the largest request, in MiB (default: %(default)s)")
    server.add_argument("--memory-mb", type=float, default=1024.0, metavar="MB",
                        help="requests and answers in memory, in MiB; beyond it, 503 (default: %(default)s)")
    server.add_argument("--connections", type=int, default=512, metavar="N",
                        help="open connections at the most; more get 503 and are closed (default: %(default)s)")
    server.add_argument("--idle-s", type=float, default=75.0, metavar="S",
                        help="a connection without the whole headers of a request for so long is closed (default: %(default)s)")
    server.add_argument("--transfer-s", type=float, default=30.0, metavar="S",
                        help="seconds that a client has to send a body, and to take an answer (default: %(default)s)")
    server.add_argument("--tls-cert", type=Path, metavar="FILE", help="speak HTTPS with this certificate chain (PEM)")
    server.add_argument("--tls-key", type=Path, metavar="FILE", help="its private key (default: it is in the same file)")
    server.add_argument("--control", action="store_true", help="let clients load, load again and unload the builds named here")


def add_boards(sub: argparse.ArgumentParser) -> None:
    """Real boards in the place of simulated ones."""
    sub.add_argument("--board", action="append", default=[], metavar="[DEVICE=]KIND:FILES",
                     help="compute the part of an FPGA on a real board: uio:/dev/uio0,/dev/uio1,/dev/udmabuf0, xdma:/dev/xdma0 "
                          "or serial:/dev/ttyUSB0,baud=921600 (docs/guide/real-boards.md); repeatable (default: simulated)")


def add_chip(sub: argparse.ArgumentParser) -> None:
    """What a whole chip is made with."""
    sub.add_argument("--mhz", type=float, help="the design's clock (default: the board file's)")
    sub.add_argument("--baud", type=float, help="bits per second of the serial line (default: the board file's)")
    sub.add_argument("--seed", type=int, default=1, metavar="N", help="where placement begins (default: %(default)s)")


def add_weights(sub: argparse.ArgumentParser) -> None:
    """Another model's weights for a build that loads them."""
    sub.add_argument("--weights", type=Path, metavar="MODEL.onnx",
                     help="load the weights of this model, of the same shapes and bits, in the place of the build's own (layers "
                          "named by `compile --loaded`)")
