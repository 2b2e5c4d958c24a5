"""Train the Fashion-MNIST example network and write it as ONNX.

    python examples/fashion/train.py                            # train, export, evaluate
    python examples/fashion/train.py --evaluate fashion.onnx    # accuracy of an ONNX file

Needs torch, onnx and onnxruntime; the images come from ``dataset.py``.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

try:
    import onnx
    import onnxruntime
    import torch
    from onnx import TensorProto, helper, numpy_helper
    from torch import Tensor, nn
    from torch.nn import functional
except ImportError as error:
    sys.exit(f"{error}. Training needs torch, onnx and onnxruntime: pip install 'dovetail-accel[train]'")

from dataset import load, normalise

HERE = Path(__file__).resolve().parent

OPSET = 17
IR_VERSION = 8
VALIDATION = 5000  # last images of the training split, never trained on
TEST_IMAGES = 512
CALIBRATION_IMAGES = 128
SHIFT = 2  # augmentation: shift by at most this many pixels along each axis
PEAK = 3.5  # equalised activation peaks: below 4, the end of the range at a scale of 2**-6 (uint8) or 2**-5
PEAK_IMAGES = 2000  # training images that measure the peaks
MAX_GAIN = 16.0  # nearly silent channels are not amplified further than this beyond the loudest

STEM, BODY, HEAD = 6, 12, 16  # channels of the three stages
HIDDEN = 64  # units of the first fully connected layer

#: name, input channels, output channels, kernel, stride, groups; in execution order.
CONVS: tuple[tuple[str, int, int, int, int, int], ...] = (
    ("conv1", 1, STEM, 3, 1, 1),
    ("dw1", STEM, STEM, 3, 2, STEM),
    ("pw1", STEM, BODY, 1, 1, 1),
    ("dw2", BODY, BODY, 3, 1, BODY),
    ("pw2", BODY, BODY, 1, 1, 1),
    ("dw3", BODY, BODY, 3, 2, BODY),
    ("pw3", BODY, HEAD, 1, 1, 1),
)
SKIP_FROM, SKIP_TO = "pw1", "pw2"  # the residual: relu(pw1) is added to bn(pw2)
FEATURES = HEAD * 7 * 7
CLASS_COUNT = 10


class FashionNet(nn.Module):
    """Small depthwise-separable CNN with one residual connection."""

    def __init__(self) -> None:
        """Fresh weights, from torch's global random generator."""
        super().__init__()
        self.convs = nn.ModuleDict()
        self.norms = nn.ModuleDict()
        self.relus = nn.ModuleDict()
        for name, c_in, c_out, kernel, stride, groups in CONVS:
            self.convs[name] = nn.Conv2d(
                c_in, c_out, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False
            )
            self.norms[name] = nn.BatchNorm2d(c_out)
            self.relus[name] = nn.ReLU()
        self.fc1 = nn.Linear(FEATURES, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, CLASS_COUNT)

    def forward(self, x: Tensor) -> Tensor:
        """Logits ``(N, 10)`` for images ``(N, 1, 28, 28)``."""
        skip = x
        for name in self.convs:
            x = self.norms[name](self.convs[name](x))
            if name == SKIP_TO:
                x = x + skip
            x = self.relus[name](x)
            if name == SKIP_FROM:
                skip = x
        return self.fc2(functional.relu(self.fc1(torch.flatten(x, 1))))


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Flip half of the images left to right and shift each by up to ``SHIFT`` pixels, zero filled."""
    count, size = images.shape[0], images.shape[-1]
    flip = torch.rand(count, generator=generator) < 0.5
    images = torch.where(flip[:, None, None, None], images.flip(-1), images)
    windows = functional.pad(images[:, 0], (SHIFT,) * 4).unfold(1, size, 1).unfold(2, size, 1)
    dy, dx = torch.randint(0, 2 * SHIFT + 1, (2, count), generator=generator)
    return windows[torch.arange(count), dy, dx].unsqueeze(1)


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor, batch: int = 1000) -> float:
    """Share of the images that the model, in evaluation mode, classifies correctly."""
    model.eval()
    correct = 0
    for start in range(0, len(images), batch):
        logits = model(images[start : start + batch])
        correct += int((logits.argmax(1) == labels[start : start + batch]).sum())
    return correct / len(images)


def train(
    images: NDArray[np.float32],
    labels: NDArray[np.uint8],
    *,
    epochs: int,
    seed: int,
    batch: int,
    rate: float,
) -> FashionNet:
    """Train on all images but the last ``VALIDATION``, which measure the accuracy per epoch.

    AdamW with a one-cycle schedule. The weights after the last epoch are returned; no epoch is
    picked by its accuracy.
    """
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))
    x_val, y_val = x[-VALIDATION:], y[-VALIDATION:]
    x, y = x[:-VALIDATION], y[:-VALIDATION]

    model = FashionNet()
    # Weight decay on the weight tensors only, not on biases and BatchNorm parameters.
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}], lr=rate
    )
    steps = len(x) // batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=rate, total_steps=epochs * steps, pct_start=0.2
    )
    for epoch in range(1, epochs + 1):
        began = time.monotonic()
        model.train()
        order = torch.randperm(len(x), generator=generator)
        total = 0.0
        for step in range(steps):
            index = order[step * batch : (step + 1) * batch]
            logits = model(augment(x[index], generator))
            loss = functional.cross_entropy(logits, y[index], label_smoothing=0.05)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach())
            if sys.stderr.isatty():
                print(f"\repoch {epoch}: step {step + 1}/{steps}", end="\r", file=sys.stderr, flush=True)
        print(
            f"epoch {epoch:3d}/{epochs}  loss {total / steps:.4f}  "
            f"validation accuracy {accuracy(model, x_val, y_val):.2%}  {time.monotonic() - began:.1f} s",
            flush=True,
        )
    model.eval()
    return model


@torch.no_grad()
def equalise(model: FashionNet, images: Tensor) -> None:
    """Bring the peak of every activation channel to about ``PEAK``, without changing the function.

    ReLU commutes with a positive factor, so a channel can be multiplied by any such factor where it
    is made (scale and bias of the BatchNorm) and divided by it where it is used (the weights of the
    next layers). Channels that peak together use the whole range of one int8 scale per tensor, so
    quantization after training loses less ("cross-layer equalization", Nagel et al. 2019).

    Args:
        model: the trained network; changed in place.
        images: normalised training images that measure the peaks.
    """
    peaks: dict[str, Tensor] = {}
    handles = []
    # Before the addition pw2 is signed and already quantized, hence its BatchNorm beside the ReLUs.
    watched = {**dict(model.relus.items()), "sum": model.norms[SKIP_TO]}
    for key, module in watched.items():

        def record(_module: nn.Module, _inputs: object, output: Tensor, key: str = key) -> None:
            peaks[key] = output.abs().amax((0, 2, 3))

        handles.append(module.register_forward_hook(record))
    model.eval()
    model(images)
    for handle in handles:
        handle.remove()

    # Layers that make the channels, layers that use them. The two sides of the addition share factors.
    groups: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
        (("conv1",), ("dw1",)),
        (("dw1",), ("pw1",)),
        (("pw1", "pw2"), ("dw2", "dw3")),
        (("dw2",), ("pw2",)),
        (("dw3",), ("pw3",)),
        (("pw3",), ("fc1",)),
    )
    for makers, users in groups:
        keys = (*makers, "sum") if SKIP_TO in makers else makers
        peak = torch.stack([peaks[key] for key in keys]).amax(0)
        factor = PEAK / torch.maximum(peak, peak.max() / MAX_GAIN)
        for name in makers:
            model.norms[name].weight.mul_(factor)
            model.norms[name].bias.mul_(factor)
        for name in users:
            if name == "fc1":
                model.fc1.weight.div_(factor.repeat_interleave(FEATURES // len(factor)))
            elif name.startswith("dw"):
                model.convs[name].weight.div_(factor.view(-1, 1, 1, 1))
            else:
                model.convs[name].weight.div_(factor.view(1, -1, 1, 1))


def to_onnx(model: FashionNet) -> onnx.ModelProto:
    """The network in evaluation mode as ONNX, node by node, with BatchNormalization kept separate.

    Node ``conv1`` writes tensor ``conv1_out``, and so on. The n-th convolution is followed by
    ``bn<n>`` and ``relu<n>``; the residual addition is ``add1``.
    """
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def weight(name: str, value: Tensor) -> str:
        weights.append(numpy_helper.from_array(value.detach().contiguous().numpy().astype(np.float32), name))
        return name

    def node(op: str, name: str, inputs: list[str], output: str | None = None, **attributes: object) -> str:
        output = output or f"{name}_out"
        nodes.append(helper.make_node(op, inputs, [output], name=name, **attributes))
        return output

    tensor, skip = "image", ""
    for number, (name, _c_in, _c_out, kernel, stride, groups) in enumerate(CONVS, start=1):
        tensor = node(
            "Conv",
            name,
            [tensor, weight(f"{name}_weight", model.convs[name].weight)],
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
            dilations=[1, 1],
            group=groups,
        )
        norm, bn = model.norms[name], f"bn{number}"
        parameters = {
            "scale": norm.weight,
            "bias": norm.bias,
            "mean": norm.running_mean,
            "var": norm.running_var,
        }
        inputs = [tensor, *(weight(f"{bn}_{key}", value) for key, value in parameters.items())]
        tensor = node("BatchNormalization", bn, inputs, epsilon=norm.eps)
        if name == SKIP_TO:
            tensor = node("Add", "add1", [tensor, skip])
        tensor = node("Relu", f"relu{number}", [tensor])
        if name == SKIP_FROM:
            skip = tensor
    tensor = node("Flatten", "flatten", [tensor], axis=1)
    hidden = [tensor, weight("fc1_weight", model.fc1.weight), weight("fc1_bias", model.fc1.bias)]
    tensor = node("Relu", "relu8", [node("Gemm", "fc1", hidden, transB=1)])
    classes = [tensor, weight("fc2_weight", model.fc2.weight), weight("fc2_bias", model.fc2.bias)]
    node("Gemm", "fc2", classes, output="logits", transB=1)

    graph = helper.make_graph(
        nodes,
        "fashion",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 28, 28])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, CLASS_COUNT])],
        weights,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    proto.ir_version = IR_VERSION
    proto.producer_name = "dovetail examples/fashion/train.py"
    onnx.checker.check_model(proto, full_check=True)
    return proto


def evaluate(path: Path) -> float:
    """Accuracy of an ONNX file on the 10,000 test images, measured with onnxruntime."""
    images, labels = load("test")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    predictions = [int(np.argmax(session.run(None, {name: x[None]})[0])) for x in normalise(images)]
    correct = int(np.sum(np.asarray(predictions) == labels))
    print(
        f"{path.name}: {correct} of {len(labels)} test images correct, accuracy {correct / len(labels):.2%}"
    )
    return correct / len(labels)


def write_samples(folder: Path) -> None:
    """Write ``test_images.npz`` (labelled test images) and ``calibration.npz`` (training images)."""
    images, labels = load("test")
    np.savez_compressed(folder / "test_images.npz", x=normalise(images[:TEST_IMAGES]), y=labels[:TEST_IMAGES])
    images, _ = load("train")
    np.savez_compressed(folder / "calibration.npz", x=normalise(images[:CALIBRATION_IMAGES]))


def find_model(path: Path) -> Path:
    """The path itself where it exists, else the file of that name beside this script."""
    for candidate in (path, HERE / path):
        if candidate.is_file():
            return candidate
    sys.exit(f"{path}: no such file, neither here nor in {HERE}")


def main(argv: list[str] | None = None) -> int:
    """Command line entry point."""
    parser = argparse.ArgumentParser(description="Train the Fashion-MNIST example network.")
    parser.add_argument("--epochs", type=int, default=40, help="passes over the training images (default 40)")
    parser.add_argument("--seed", type=int, default=1, help="seed of every random choice (default 1)")
    parser.add_argument("--batch", type=int, default=256, help="images per step (default 256)")
    parser.add_argument("--rate", type=float, default=0.01, help="peak learning rate (default 0.01)")
    parser.add_argument("--threads", type=int, default=2, help="torch threads (default 2)")
    parser.add_argument(
        "--out",
        type=Path,
        default=HERE,
        help="folder for fashion.onnx and the .npz files (default: this one)",
    )
    parser.add_argument(
        "--evaluate", type=Path, metavar="ONNX", help="do not train: print the test accuracy of this file"
    )
    args = parser.parse_args(argv)

    try:
        if args.evaluate is not None:
            evaluate(find_model(args.evaluate))
            return 0
        images, labels = load("train")
    except FileNotFoundError as error:
        sys.exit(str(error))
    if args.epochs < 1 or not 1 <= args.batch <= len(images) - VALIDATION:
        parser.error("--epochs and --batch must be at least 1, and a batch no larger than the training set")
    torch.set_num_threads(args.threads)
    x = normalise(images)
    model = train(x, labels, epochs=args.epochs, seed=args.seed, batch=args.batch, rate=args.rate)
    equalise(model, torch.from_numpy(x[:PEAK_IMAGES]))
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "fashion.onnx"
    onnx.save(to_onnx(model), str(path))
    write_samples(args.out)
    conv_weights = sum(module.weight.numel() for module in model.convs.values())
    print(f"wrote {path}: {conv_weights} convolution weights, {model.fc1.weight.numel() + model.fc2.weight.numel()} Gemm weights")
    evaluate(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
