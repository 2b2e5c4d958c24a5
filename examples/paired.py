"""What the examples share: training, an ONNX file of the module, its integers, and both scored on the same held-back frames."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

import dovetail as dt
from dovetail.files import replace_bytes
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.fixed import dequantize
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.reference import run_integer
from dovetail.runtime.build import store

Score = Callable[[np.ndarray], np.ndarray]
"""A number per frame (right or wrong, a share of pixels), from all frames' outputs."""
CHUNK = 64


def fit(make: Callable[[], Any], loss: Callable[[Any, Any, Any], Any], count: int, epochs: int, batch: int, rate: float,
        seed: int) -> Any:
    """Train a PyTorch module on so many frames: AdamW with a one-cycle schedule; the weights after the last epoch are kept.

    `loss` is asked of the module, the numbers of a batch's frames, and the generator that all draws come from.
    """
    import torch
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(seed)
    model, steps = make(), count // batch
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, epochs * steps)
    for epoch in range(1, epochs + 1):
        began, order, total = time.process_time(), torch.randperm(count, generator=generator), 0.0
        model.train()
        for step in range(steps):
            now = loss(model, order[step * batch:(step + 1) * batch], generator)
            optimizer.zero_grad()
            now.backward()
            optimizer.step()
            schedule.step()
            total += float(now.detach())
        print(f"epoch {epoch:2d}/{epochs}  loss {total / steps:.4f}  {time.process_time() - began:.1f} s", flush=True)
    return model.eval()


def export(model: Any, frame: np.ndarray, path: Path, source: str, result: str) -> None:
    """Write a PyTorch module as a small ONNX file with batch 1."""
    import torch
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(model, (torch.from_numpy(frame),), str(path), dynamo=False, opset_version=17, input_names=[source],
                      output_names=[result])


def quantize(model: Path, frames: np.ndarray, path: Path) -> None:
    """Write the model's integers, with scales from these frames."""
    replace_bytes(path, to_onnx(dt.quantize(model, frames).graph))


def outputs(model: Path, x: np.ndarray) -> np.ndarray:
    """What a float file answers by ONNX Runtime, and a quantized one by the integer reference."""
    graph = read_onnx(model).graph
    (name,), (result,) = graph.inputs, graph.outputs
    if not graph.quantized:
        content = model.read_bytes()
        return np.concatenate([run_onnx(content, {name: frame[None]})[result] for frame in x])
    chunks = (run_integer(graph, store(graph, {name: x[i:i + CHUNK]}, "frames"))[result] for i in range(0, len(x), CHUNK))
    return dequantize(np.concatenate(list(chunks)), graph.tensors[result].scheme)


def compare(floats: Path, integers: Path, x: np.ndarray, score: Score, frames: str) -> str:
    """Both mean scores, and the mean of their difference frame by frame with its 95 % interval."""
    a, b = (100 * score(outputs(m, x)).astype(np.float64) for m in (floats, integers))
    spread = 1.96 * (a - b).std(ddof=1) / sqrt(len(x))
    return (f"{len(x):,} held-back {frames}: float {a.mean():.2f} %, integers {b.mean():.2f} %; "
            f"lost {(a - b).mean():.2f} ± {spread:.2f} points (paired, 95 %)")
