"""The command that trains networks of few bits and exports them as integers."""

from __future__ import annotations

from pathlib import Path

from dovetail.cli.options import Commands


def add_commands(commands: Commands) -> None:
    """`train`."""
    sub = commands.add("train", "train a network of 1 to 4 bits on local images and export it as exact integers",
                       "dovetail train small --bits w2a2 --data /usr/share/datasets/fashion-mnist --epochs 5 -o runs/small-w2a2")
    sub.add_argument("network", help="resnet20, resnet8, vgg-small, alexnet, small, or a float ONNX file of your own")
    sub.add_argument("--bits", default="w2a2", help="float, w1 to w4 with a1 to a4 or a8, or w8a8 (default: %(default)s)")
    sub.add_argument("--method", choices=("lq", "uniform", "lsq", "apot"),
                     help="learned bases (LQ-Nets), equal steps (DoReFa-Net), equal steps of learned size (LSQ), or additive "
                          "powers of two with a learned clip (APoT) (default: lq)")
    sub.add_argument("--ends", type=int, choices=(8, 0),
                     help="bits of first and last layer's weights: 8, or 0 for those of all others (default: 8)")
    sub.add_argument("--data", type=Path, required=True, metavar="PATH",
                     help="a .npz, a folder of CIFAR-10's Python batches, of IDX files such as Fashion-MNIST's, of .npy shards, "
                          "or of pictures (train/CLASS/, val/CLASS/); the last two are read batch by batch")
    sub.add_argument("--size", type=int, metavar="PIXELS", help="a side of every image, where these are pictures")
    sub.add_argument("--workers", type=int, default=0, metavar="N",
                     help="processes that read images batch by batch; 0 reads them between steps (default: %(default)s)")
    sub.add_argument("--minutes", type=float, default=10.0, metavar="X",
                     help="between checkpoints within an epoch (default: %(default)g)")
    sub.add_argument("-o", "--output", type=Path, required=True, metavar="DIR",
                     help="folder of the run; one that was interrupted is resumed")
    for name, kind, default, text in (
            ("epochs", int, 200, "passes over the training images"), ("batch", int, 128, "images per step"),
            ("rate", float, 0.1, "learning rate at the start"), ("decay", float, 1e-4, "weight decay"),
            ("warmup", int, 0, "epochs over which the rate rises"), ("pad", int, 4, "pixels that images are shifted by at most"),
            ("seed", int, 0, "of weights, order and augmentation"),
            ("every", int, 10, "epochs between evaluations, each with a checkpoint"),
            ("integer-images", int, 1000, "test images that the exported integers are evaluated on")):
        sub.add_argument(f"--{name}", type=kind, default=default, help=f"{text} (default: %(default)s)")
    sub.add_argument("--width", type=int, help="filters of the first layer (default: the network's own)")
    sub.add_argument("--schedule", choices=("cosine", "step"), default="cosine", help="how the rate falls (default: %(default)s)")
    sub.add_argument("--no-flip", action="store_true", help="do not mirror training images")
    sub.add_argument("--start", default="", metavar="MODEL.pt",
                     help="a finished run's weights, in floats or more bits, to begin with")
    sub.add_argument("--teacher", default="", metavar="MODEL",
                     help="the model.pt of a finished float run, or a float ONNX file, whose answers are learned beside labels")
    sub.add_argument("--temperature", type=float, metavar="X",
                     help="what answers are divided by before a teacher's are learned: above 1 (4 is usual), what the teacher "
                          "holds for nearly right counts too (default: 1)")
    for name, text in (("mean", "taken from images, as bytes over 256, before a network from a file reads them"),
                       ("deviation", "that they are divided by then")):
        sub.add_argument(f"--{name}", default="", metavar="X[,X,X]", help=f"{text}: one number, or one per channel")
    sub.add_argument("--precision", choices=("float32", "tf32", "bf16"), default="tf32",
                     help="arithmetic of products on a GPU (default: %(default)s)")
    sub.add_argument("--eager", action="store_true", help="launch every kernel on a GPU in place of replaying recorded steps")
    sub.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")
