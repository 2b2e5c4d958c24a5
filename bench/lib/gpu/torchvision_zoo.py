"""Networks of torchvision with random weights, as PyTorch's modules and as graphs; exported side by side in processes."""

from __future__ import annotations

import io
import pickle
import random
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from dovetail.ir import Graph
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.tables import tabulate

OPSET = 17
FIRST = ("vit_b_16", "swin_t", "convnext_tiny", "deeplabv3_mobilenet_v3_large", "ssdlite320_mobilenet_v3_large", "googlenet",
         "efficientnet_b0", "shufflenet_v2_x1_0", "maxvit_t", "swin_v2_t", "lraspp_mobilenet_v3_large", "inception_v3",
         "regnet_y_400mf", "densenet121", "mobilenet_v3_large", "retinanet_resnet50_fpn", "fcn_resnet50", "squeezenet1_0",
         "resnet18", "mnasnet1_0", "vgg11_bn", "alexnet", "efficientnet_v2_s", "deeplabv3_resnet50", "resnext50_32x4d",
         "wide_resnet50_2", "mobilenet_v2")
"""What is checked first: the most different ones (chosen)."""
BACKBONES = ("ssdlite320_mobilenet_v3_large", "retinanet_resnet50_fpn")
"""Detectors, of which the backbone with its feature maps is taken; what is behind chooses boxes by their values."""
SEGMENTATION = ("deeplabv3_mobilenet_v3_large", "deeplabv3_resnet50", "fcn_resnet50", "lraspp_mobilenet_v3_large")
SIDES = {"inception_v3": 299, "maxvit_t": 224, "ssdlite320_mobilenet_v3_large": 320}
"""Rows and columns of frames, where 224 is not what a network is made for."""
DRAWN_BY = 36
"""The seed of the networks that are timed (chosen: this question's number)."""


class Listed(torch.nn.Module):
    """A network whose results are a mapping, as a tuple."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> Any:
        found = self.inner(x)
        return tuple(found.values()) if isinstance(found, dict) else found


def classifiers() -> list[str]:
    import torchvision  # type: ignore[import-not-found,unused-ignore]
    return sorted(torchvision.models.list_models(module=torchvision.models))


def names() -> list[str]:
    """All networks that are checked, the most different first."""
    return [*FIRST, *(n for n in classifiers() if n not in FIRST)]


def drawn(count: int = 12) -> list[str]:
    """Networks that are timed, by a stated seed."""
    return random.Random(DRAWN_BY).sample(classifiers(), count)


def module(name: str, seed: int = 0) -> torch.nn.Module:
    """A network with random weights in evaluation mode."""
    import torchvision
    torch.manual_seed(seed)
    options: dict[str, Any] = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
    if name in (*BACKBONES, *SEGMENTATION):
        options = {"weights_backbone": None}
    made = torchvision.models.get_model(name, weights=None, **options)
    made = Listed(made.backbone if name in BACKBONES else made)
    return settled(made, seed).eval()


def settled(made: torch.nn.Module, seed: int) -> torch.nn.Module:
    """Statistics of normalizations, and weights that begin as zeros or nearly so, as if they had been learned."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part in made.modules():
            if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
                for held, lo, hi in ((part.running_mean, -0.1, 0.1), (part.running_var, 0.8, 1.2), (part.weight, 0.7, 1.3),
                                     (part.bias, -0.1, 0.1)):
                    held.copy_(torch.rand(held.shape, generator=generator) * (hi - lo) + lo)
        for weight in made.parameters():
            if weight.abs().max() < 1e-3:
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.1)
    return made


def frames_for(name: str, images: int = 1) -> torch.Tensor:
    side = SIDES.get(name, 224)
    return torch.randn((images, 3, side, side), generator=torch.Generator().manual_seed(1))


def exported(made: torch.nn.Module, frames: torch.Tensor) -> Graph:
    """A module as a graph, through ONNX."""
    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.backends.mha.set_fastpath_enabled(False)  # one operator, which ONNX has not
        torch.onnx.export(made, (frames,), file, opset_version=OPSET, dynamo=False)
    return tabulate(read_onnx(file.getvalue()).graph)


def prepared(name: str) -> tuple[str, Path | None, str, float]:
    """A network's graph in a file, or why there is none; for a process of its own."""
    begun = time.perf_counter()
    torch.set_num_threads(2)
    path = Path(tempfile.gettempdir()) / f"{name}.graph"
    try:
        if not path.is_file():
            graph = exported(module(name), frames_for(name))
            held = {f: getattr(graph, f) for f in ("name", "inputs", "outputs", "nodes")}
            path.write_bytes(pickle.dumps({**held, "tensors": dict(graph.tensors), "constants": dict(graph.constants)}))
    except Exception as error:  # whatever an exporter raises is the network's row
        return name, None, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", 0.0
    return name, path, "", time.perf_counter() - begun


def unpacked(path: Path) -> Graph:
    return Graph(**pickle.loads(path.read_bytes()))
