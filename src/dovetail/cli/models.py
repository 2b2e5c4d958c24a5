"""Commands on a model alone: what is in it, the papers' networks, its integers and how good they are."""

from __future__ import annotations

from pathlib import Path

from dovetail.cli.options import Commands, add_model, add_numbers, add_table, add_trust


def add_commands(commands: Commands) -> None:
    """`inspect`, `zoo`, `quantize`, `evaluate`."""
    inspect = commands.add("inspect", "layers, MACs, parameters, and what each kind of device can take",
                           "dovetail inspect examples/fashion/fashion.onnx")
    add_model(inspect)
    add_table(inspect)

    zoo = commands.add("zoo", "the papers' networks as ONNX with seeded weights; without a name, the table",
                       "dovetail zoo mobilenet-v2 --size 96 -o m.onnx")
    zoo.add_argument("name", nargs="?", help="a network; without it, all with parameters, MACs and their sources")
    zoo.add_argument("-o", "--output", type=Path, help="the ONNX file to write")
    zoo.add_argument("--size", type=int, help="side of the image in pixels (default: the network's own)")
    zoo.add_argument("--width", type=float, help="multiplies channel counts (default: the network's own)")
    zoo.add_argument("--no-bn", action="store_true", help="biases in place of BatchNorm")
    zoo.add_argument("--seed", type=int, help="of the weights (default: 0)")

    quantize = commands.add("quantize",
                            "turn a float model into a power-of-two QDQ model that plain ONNX Runtime loads",
                            "dovetail quantize model.onnx --bits 8 --calibration images.npz -o int8.onnx")
    add_model(quantize)
    add_numbers(quantize)
    quantize.add_argument("-o", "--output", type=Path, help="the QDQ model to write")
    quantize.add_argument("--qonnx", action="store_true",
                          help="write QONNX (Quant, BipolarQuant, MultiThreshold), for FINN and its kin, in place of QDQ")
    quantize.add_argument("--report", action="store_true",
                          help="the noise integers add to every tensor, and the answers beside ONNX Runtime's static int8")

    evaluate = commands.add("evaluate", "accuracy on labelled data: float model, its integers, and a build's devices",
                            "dovetail evaluate model.onnx --data test.npz --calibration train.npz --build build/model")
    add_model(evaluate)
    add_numbers(evaluate)
    evaluate.add_argument("--data", type=Path, required=True, metavar="X.npz", help="images under 'x', integer labels under 'y'")
    evaluate.add_argument("--build", type=Path, help="a build folder of the same model, run on its devices as well")
    add_trust(evaluate)
