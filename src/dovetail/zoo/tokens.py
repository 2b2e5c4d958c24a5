"""Layers over tokens (batch, count, features), in the primitive operators an opset-17 exporter writes."""

from __future__ import annotations

from math import sqrt

from dovetail.ir.onnx.builder import Normal, Uniform
from dovetail.zoo.network import Moments, Net


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
