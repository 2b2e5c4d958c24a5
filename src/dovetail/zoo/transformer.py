"""CeiT-T (Yuan et al. 2021) and CvT-13 (Wu et al. 2021), whole: transformers with convolutions inside.

Both add a learned token to the image's tokens, so the batch is fixed to one, as an exporter leaves it. Layers over
tokens (batch, count, features) are in the primitive operators an opset-17 exporter writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from dovetail.ir.onnx.builder import Normal, Uniform
from dovetail.zoo.network import Moments, Net

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


def linear(net: Net, x: str, name: str, features: int, *, gain: float = 1.0) -> str:
    """MatMul by a stored (in, out) matrix, then Add of the bias."""
    *leading, count = net.shape(x)
    law = Normal(sqrt(gain / (count * net.moments[x].power)))
    weight = net.builder.initializer(f"{name}.weight", (count, features), law)
    bias = net.builder.initializer(f"{name}.bias", (features,), Normal(0.1 * sqrt(gain)))
    shape = (*leading, features)
    product = net.emit("MatMul", [x, weight], f"{name}.matmul", shape, Moments(0.0, gain))
    return net.emit("Add", [bias, product], name, shape, Moments(0.0, gain))


def layer_norm(net: Net, x: str, name: str, epsilon: float) -> str:
    """Normalise each token over its features: mean, deviation, scale, shift."""
    shape, features = net.shape(x), net.shape(x)[-1]
    statistic, unit, m = (*shape[:-1], 1), Moments(0.0, 1.0), net.moments[x]
    constant = net.builder.constant
    mean = net.emit("ReduceMean", [x], f"{name}.mean", statistic, Moments(m.mean, 0.0), axes=[-1], keepdims=1)
    away = net.emit("Sub", [x, mean], f"{name}.sub", shape, Moments(0.0, m.variance))
    square = net.emit("Pow", [away, constant(f"{name}.two", 2.0)], f"{name}.pow", shape, Moments(m.variance, m.variance))
    variance = net.emit("ReduceMean", [square], f"{name}.variance", statistic, Moments(m.variance, 0.0), axes=[-1], keepdims=1)
    guarded = net.emit("Add", [variance, constant(f"{name}.epsilon", epsilon)], f"{name}.guard", statistic, m)
    deviation = net.emit("Sqrt", [guarded], f"{name}.sqrt", statistic, m)
    scaled = net.emit("Div", [away, deviation], f"{name}.div", shape, unit)
    weight = net.builder.initializer(f"{name}.weight", (features,), Uniform(0.8, 1.25))
    bias = net.builder.initializer(f"{name}.bias", (features,), Normal(0.1))
    return net.emit("Add", [net.emit("Mul", [scaled, weight], f"{name}.mul", shape, unit), bias], name, shape, unit)


def gelu(net: Net, x: str, name: str) -> str:
    """x / 2 * (1 + erf(x / sqrt 2)) (Hendrycks and Gimpel 2016)."""
    shape, m = net.shape(x), net.moments[x]
    constant = net.builder.constant
    inner = net.emit("Div", [x, constant(f"{name}.sqrt2", sqrt(2.0))], f"{name}.div", shape, m)
    erf = net.emit("Erf", [inner], f"{name}.erf", shape, Moments(0.0, 0.4))
    gate = net.emit("Add", [erf, constant(f"{name}.one", 1.0)], f"{name}.add", shape, Moments(1.0, 0.4))
    gated = net.emit("Mul", [x, gate], f"{name}.gated", shape, m)
    return net.emit("Mul", [gated, constant(f"{name}.half", 0.5)], name, shape, m.rectified())


def attend(net: Net, query: str, key: str, value: str, name: str, scale: float) -> str:
    """softmax(q k^T scale) v, the heads joined again: (1, tokens, features); q, k, v are (1, heads, tokens, head's features)."""
    _, heads, tokens, features = net.shape(query)
    against = net.shape(key)[2]
    keys = net.transpose(key, f"{name}.keys", (0, 1, 3, 2))
    scores_shape = (1, heads, tokens, against)
    scores = net.emit("MatMul", [query, keys], f"{name}.scores", scores_shape, Moments(0.0, float(features)))
    scaled = net.emit("Mul", [scores, net.builder.constant(f"{name}.scale", scale)], f"{name}.scaled", scores_shape,
                      Moments(0.0, features * scale**2))
    weights = net.emit("Softmax", [scaled], f"{name}.softmax", scores_shape, Moments(1 / against, 0.0), axis=-1)
    seen = net.moments[value]
    mixed = net.emit("MatMul", [weights, value], f"{name}.mixed", net.shape(query), Moments(seen.mean, 0.2 * seen.variance))
    return net.reshape(net.transpose(mixed, f"{name}.swap", (0, 2, 1, 3)), f"{name}.join", (1, tokens, heads * features))


def apart(net: Net, x: str, name: str, heads: int) -> str:
    """(1, tokens, features) to (1, heads, tokens, features / heads)."""
    _, tokens, features = net.shape(x)
    x = net.reshape(x, f"{name}.apart", (1, tokens, heads, features // heads))
    return net.transpose(x, f"{name}.heads", (0, 2, 1, 3))


def to_tokens(net: Net, x: str, name: str) -> str:
    """A map (1, features, height, width) as (1, height * width, features)."""
    _, features, height, width = net.shape(x)
    return net.transpose(net.reshape(x, f"{name}.flat", (1, features, height * width)), f"{name}.tokens", (0, 2, 1))


def to_map(net: Net, x: str, name: str, height: int, width: int) -> str:
    """Tokens as a map again."""
    features = net.shape(x)[2]
    x = net.transpose(x, f"{name}.features", (0, 2, 1))
    return net.reshape(x, f"{name}.map", (1, features, height, width))


def class_token(net: Net, x: str, name: str) -> str:
    """Put a learned token before the others."""
    features = net.shape(x)[2]
    token = net.builder.initializer(name, (1, 1, features), Normal(1.0))
    net.moments[token] = Moments(0.0, 1.0)
    return net.concat([token, x], f"{name}.concat")


def pick(net: Net, x: str, name: str, index: int, axis: int) -> str:
    """One entry along an axis, which disappears."""
    shape = net.shape(x)
    rest = (*shape[:axis], *shape[axis + 1:])
    return net.emit("Gather", [x, net.builder.constant(f"{name}.index", index)], name, rest, net.moments[x], axis=axis)


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
