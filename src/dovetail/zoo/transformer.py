"""CeiT-T (Yuan et al. 2021) and CvT-13 (Wu et al. 2021), whole: transformers with convolutions inside.

Both add a learned token to the image's tokens, so the batch is fixed to one, as an exporter leaves it.
"""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.ir.onnx.builder import Normal
from dovetail.zoo.network import Moments, Net
from dovetail.zoo.tokens import apart, attend, class_token, gelu, layer_norm, linear, pick, to_map, to_tokens

MLP_RATIO = 4

CEIT_FEATURES, CEIT_DEPTH, CEIT_HEADS, CEIT_PATCH, CEIT_EPSILON = 192, 12, 3, 4, 1e-6
"""CeiT-T: 64-channel stem, patches of 4x4 on its quarter-size map."""

CVT_EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class CvtStage:
    """One stage of CvT: the embedding convolution, then `depth` blocks."""

    features: int
    depth: int
    heads: int
    kernel: int
    stride: int
    pad: int


CVT_STAGES = (CvtStage(64, 1, 1, 7, 4, 2), CvtStage(192, 2, 3, 3, 2, 1), CvtStage(384, 10, 6, 3, 2, 1))
"""CvT-13 (Table 2 of the paper); the last stage has the class token."""


def _mlp(net: Net, x: str, name: str) -> str:
    features = net.shape(x)[2]
    hidden = gelu(net, linear(net, x, f"{name}.fc1", features * MLP_RATIO, gain=2.0), f"{name}.gelu")
    return linear(net, hidden, f"{name}.fc2", features)


def _ceit_attention(net: Net, x: str, name: str) -> str:
    _, tokens, features = net.shape(x)
    each = features // CEIT_HEADS
    qkv = linear(net, x, f"{name}.qkv", 3 * features)
    qkv = net.transpose(net.reshape(qkv, f"{name}.apart", (1, tokens, 3, CEIT_HEADS, each)), f"{name}.heads", (2, 0, 3, 1, 4))
    query, key, value = (pick(net, qkv, f"{name}.{part}", i, 0) for i, part in enumerate(("query", "key", "value")))
    return linear(net, attend(net, query, key, value, name, each**-0.5), f"{name}.proj", features)


def _locally_enhanced(net: Net, x: str, name: str, side: int) -> str:
    """CeiT's feed-forward layer: image tokens become a map again and meet a depthwise convolution; the class token passes."""
    _, tokens, features = net.shape(x)
    hidden = features * MLP_RATIO
    token, patches = net.split(x, f"{name}.split", (1, tokens - 1))
    y = to_map(net, patches, name, side, side)
    y = gelu(net, net.norm(net.conv(y, f"{name}.conv1", hidden, gain=2.0), f"{name}.bn1"), f"{name}.gelu1")
    y = net.conv(y, f"{name}.conv2", hidden, 3, pad=1, groups=hidden, gain=2.0)
    y = gelu(net, net.norm(y, f"{name}.bn2"), f"{name}.gelu2")
    y = net.norm(net.conv(y, f"{name}.conv3", features), f"{name}.bn3")
    return net.concat([token, to_tokens(net, y, name)], f"{name}.concat")


def ceit_t(net: Net, classes: int) -> str:
    """As published by the authors, with attention over the class tokens of all layers at the end (LCA)."""
    x = net.conv(net.image(), "i2t.conv", 64, 7, stride=2, pad=3, bias=not net.batch_norm)
    x = net.max_pool(net.norm(x, "i2t.bn"), "i2t.maxpool", pad=1)
    x = net.conv(x, "i2t.proj", CEIT_FEATURES, CEIT_PATCH, stride=CEIT_PATCH)
    side = net.shape(x)[2]
    x = class_token(net, to_tokens(net, x, "i2t"), "cls_token")
    x = _embed(net, x, "pos_embed")
    tokens = []
    for i in range(CEIT_DEPTH):
        name = f"blocks.{i}"
        y = _ceit_attention(net, layer_norm(net, x, f"{name}.norm1", CEIT_EPSILON), f"{name}.attn")
        x = net.add(x, y, f"{name}.add1")
        y = _locally_enhanced(net, layer_norm(net, x, f"{name}.norm2", CEIT_EPSILON), f"{name}.leff", side)
        x = net.add(x, y, f"{name}.add2")
        token = pick(net, x, f"{name}.token", 0, 1)
        tokens.append(net.reshape(token, f"{name}.row", (1, 1, CEIT_FEATURES)))
    x = _embed(net, net.concat(tokens, "tokens"), "pos_layer_embed")
    x = net.add(x, _ceit_attention(net, layer_norm(net, x, "lca.norm1", CEIT_EPSILON), "lca.attn"), "lca.add1")
    x = net.add(x, _mlp(net, layer_norm(net, x, "lca.norm2", CEIT_EPSILON), "lca.mlp"), "lca.add2")
    x = layer_norm(net, pick(net, x, "lca.token", CEIT_DEPTH - 1, 1), "norm", CEIT_EPSILON)
    return net.gemm(x, "head", classes)


def _embed(net: Net, x: str, name: str) -> str:
    """Add a learned position to every token."""
    position = net.builder.initializer(name, net.shape(x), Normal(0.2))
    net.moments[position] = Moments(0.0, 0.04)
    return net.add(x, position, f"{name}.add")


def _projection(net: Net, x: str, token: str | None, name: str, stride: int) -> str:
    """CvT's convolutional projection: depthwise convolution over the map, back to tokens, class token in front."""
    depth = net.shape(x)[1]
    y = net.conv(x, f"{name}.conv", depth, 3, stride=stride, pad=1, groups=depth, bias=not net.batch_norm)
    tokens = to_tokens(net, net.norm(y, f"{name}.bn"), name)
    return tokens if token is None else net.concat([token, tokens], f"{name}.concat")


def _cvt_attention(net: Net, x: str, name: str, stage: CvtStage, side: int, with_token: bool) -> str:
    token: str | None = None
    if with_token:
        token, x = net.split(x, f"{name}.split", (1, side * side))
    picture = to_map(net, x, name, side, side)
    parts = []
    for part, stride in (("q", 1), ("k", 2), ("v", 2)):  # keys and values from a quarter of the tokens
        seen = _projection(net, picture, token, f"{name}.conv_proj_{part}", stride)
        parts.append(apart(net, linear(net, seen, f"{name}.proj_{part}", stage.features), f"{name}.{part}", stage.heads))
    query, key, value = parts
    return linear(net, attend(net, query, key, value, name, stage.features**-0.5), f"{name}.proj", stage.features)


def cvt_13(net: Net, classes: int) -> str:
    x, token = net.image(), ""
    for i, stage in enumerate(CVT_STAGES):
        name = f"stage{i}"
        x = net.conv(x, f"{name}.patch_embed.proj", stage.features, stage.kernel, stride=stage.stride, pad=stage.pad)
        side = net.shape(x)[2]
        x = layer_norm(net, to_tokens(net, x, f"{name}.patch_embed"), f"{name}.patch_embed.norm", CVT_EPSILON)
        last = i == len(CVT_STAGES) - 1
        if last:
            x = class_token(net, x, f"{name}.cls_token")
        for j in range(stage.depth):
            block = f"{name}.blocks.{j}"
            y = layer_norm(net, x, f"{block}.norm1", CVT_EPSILON)
            x = net.add(x, _cvt_attention(net, y, f"{block}.attn", stage, side, last), f"{block}.add1")
            x = net.add(x, _mlp(net, layer_norm(net, x, f"{block}.norm2", CVT_EPSILON), f"{block}.mlp"), f"{block}.add2")
        if last:
            token, x = net.split(x, f"{name}.split", (1, side * side))
        else:
            x = to_map(net, x, name, side, side)
    x = layer_norm(net, token, "norm", CVT_EPSILON)
    return net.gemm(pick(net, x, "token", 0, 1), "head", classes)
