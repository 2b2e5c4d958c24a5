"""Small networks in the manner of those that vision uses, as PyTorch's modules, and their way through ONNX."""

from __future__ import annotations

import io
import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional

from dovetail.ir import Graph
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.tables import tabulate


class VisionTransformer(nn.Module):
    """Dosovitskiy et al. 2021: patches, a class token, attention."""

    def __init__(self, width: int = 24, size: int = 16, patch: int = 8) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 3, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(2))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 10))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])


class Windows(nn.Module):
    """Liu et al. 2021: attention in shifted windows with a bias by place, then patches merged."""

    def __init__(self, width: int = 8, window: int = 2) -> None:
        super().__init__()
        self.window, self.width = window, width
        self.stem, self.norm, self.last = nn.Conv2d(3, width, 2, 2), nn.LayerNorm(width), nn.LayerNorm(4 * width)
        self.inward, self.outward = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.randn(2, window**2, window**2))
        self.merged = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).permute(0, 2, 3, 1)
        n, h, w, c = x.shape
        own, k = torch.roll(self.norm(x), (-1, -1), (1, 2)), self.window
        own = own.view(n, h // k, k, w // k, k, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, k * k, c)
        q, key, v = self.inward(own).reshape(-1, k * k, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
        own = (((q @ key.transpose(-2, -1)) * (c // 2) ** -0.5 + self.bias).softmax(-1) @ v).transpose(1, 2).reshape(-1, k * k, c)
        own = self.outward(own).view(n, h // k, w // k, k, k, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
        x = x + torch.roll(own, (1, 1), (1, 2))
        x = torch.cat([x[:, i::2, j::2] for i in range(2) for j in range(2)], -1)
        return self.merged(self.last(x)).permute(0, 3, 1, 2).mean((2, 3))


class Modern(nn.Module):
    """Liu et al. 2022: depthwise 7 x 7, LayerNorm over channels, GELU, a scale per layer."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.depthwise, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.rand(width, 1, 1))
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        own = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        x = x + self.scale * self.narrow(functional.gelu(self.wide(own))).permute(0, 3, 1, 2)
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Enlarging(nn.Module):
    """Ronneberger et al. 2015: a U with transposed convolutions, group normalization, two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, 1)
        self.up, self.joined = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 8, 3, padding=1)
        self.norm, self.last = nn.GroupNorm(2, 8), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first = torch.relu(self.first(x))
        x = self.joined(torch.cat([first, self.up(torch.relu(self.down(first)))], 1))
        x = functional.mish(self.norm(x))
        whole = functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False).flatten(2).mean(-1).softmax(1)
        return functional.interpolate(self.last(x), scale_factor=2, mode="bilinear", align_corners=False), whole


class Atrous(nn.Module):
    """Chen et al. 2017: dilated branches, one of them of the whole image, enlarged to the input's size."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish())
        self.branches = nn.ModuleList([nn.Conv2d(8, 4, 1), nn.Conv2d(8, 4, 3, padding=2, dilation=2)])
        self.whole, self.last = nn.Conv2d(8, 4, 1), nn.Conv2d(12, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        size, x = x.shape[-2:], self.stem(x)
        whole = functional.interpolate(self.whole(functional.adaptive_avg_pool2d(x, 1)), x.shape[-2:], mode="bilinear")
        x = self.last(torch.cat([*(branch(x) for branch in self.branches), whole], 1))
        return functional.interpolate(x, size, mode="bilinear", align_corners=False).argmax(1)


class Boxes(nn.Module):
    """Liu et al. 2016: heads on two maps, side by side as boxes and scores, decoded against anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 2, 1)
        self.heads = nn.ModuleList(nn.Conv2d(8, 2 * (4 + 3), 3, padding=1) for _ in range(2))
        self.register_buffer("anchors", torch.rand(1, 2 * (30 + 9), 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        maps = [torch.relu(self.first(x))]
        maps.append(torch.relu(self.second(maps[0])))
        heads = [head(m).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 7) for head, m in zip(self.heads, maps, strict=True)]
        found = torch.cat(heads, 1)
        places, scores = found[..., :4], found[..., 4:].softmax(-1)
        middle, size = places[..., :2] * self.anchors[..., 2:] + self.anchors[..., :2], places[..., 2:].clamp(max=1).exp()
        return torch.cat([middle - size / 2, middle + size / 2], -1), scores


NETWORKS = {"ViT": (VisionTransformer, (3, 16, 16)), "Swin": (Windows, (3, 8, 8)), "ConvNeXt": (Modern, (3, 16, 12)),
            "U-Net": (Enlarging, (3, 8, 6)), "DeepLab": (Atrous, (3, 9, 11)), "SSD": (Boxes, (3, 11, 9))}


def network(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """A network in evaluation mode, always the same, and the shape of a frame."""
    torch.manual_seed(0)
    made, shape = NETWORKS[name]
    return made().eval(), shape


def through_onnx(made: nn.Module, shape: tuple[int, ...]) -> Graph:
    """The graph of a module for one frame."""
    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(made, (torch.zeros(1, *shape),), file, opset_version=17, dynamo=False)
    return tabulate(read_onnx(file.getvalue()).graph)


def results(found: object) -> list[Tensor]:
    """Results one by one."""
    return list(found) if isinstance(found, tuple | list) else [found]  # type: ignore[list-item]
