"""Files that exporters write themselves, each by its own package: imported, planned, and their integers those of ONNX Runtime."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import dovetail as dt
from dovetail.ir import Graph, Opaque
from dovetail.ir.onnx.read import read_model
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.fixed import dequantize
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.reference import run_float, run_integer
from dovetail.runtime.build import store

TORCH_EXPORT = """
import numpy as np, torch
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
        self.b = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False), nn.BatchNorm2d(8), nn.Hardswish(),
                               nn.Conv2d(8, 8, 1))
        self.fc = nn.Linear(8, 5)
    def forward(self, x):
        x = self.a(x)
        return self.fc(torch.flatten(nn.functional.adaptive_avg_pool2d(x + self.b(x), 1), 1))
torch.manual_seed(1)
net, frames = Block().eval(), torch.rand(8, 3, 16, 16)
np.savez("frames.npz", x=frames.numpy(), y=net(frames).detach().numpy())
batch = torch.export.Dim("batch", min=1, max=64)
torch.onnx.export(net, (frames[:2],), "model.onnx", dynamo=True, dynamic_shapes={"x": {0: batch}}, verbose=False)
"""
KERAS = """
import keras, numpy as np
from keras import layers as L
keras.utils.set_random_seed(1)
x = image = keras.Input((16, 16, 3), name="image")
x = L.ReLU(6.0)(L.BatchNormalization()(L.Conv2D(8, 3, 2, "same", use_bias=False)(x)))
y = L.Activation("hard_swish")(L.BatchNormalization()(L.DepthwiseConv2D(3, 1, "same", use_bias=False)(x)))
x = L.MaxPooling2D()(L.Add()([x, L.Conv2D(8, 1)(y)]))
x = L.Flatten()(L.Conv2D(6, 3)(x))
net = keras.Model(image, L.Dense(5)(x))
frames = np.random.default_rng(0).random((8, 16, 16, 3), np.float32)
np.savez("frames.npz", x=frames, y=net.predict(frames, verbose=0))  # an export before it is refused
net.export("model.onnx", format="onnx", verbose=False)
"""
BREVITAS = """
import brevitas.nn as q, numpy as np, torch
from brevitas.export import export_onnx_qcdq, export_qonnx
from brevitas.quant import Int8ActPerTensorFixedPoint, Int8WeightPerTensorFixedPoint, Uint8ActPerTensorFixedPoint
from torch import nn
torch.manual_seed(1)
def conv(inputs, bits):
    return [q.QuantConv2d(inputs, 8, 3, padding=1, bias=False, weight_bit_width=bits, weight_quant=Int8WeightPerTensorFixedPoint),
            nn.BatchNorm2d(8), q.QuantReLU(bit_width=bits, act_quant=Uint8ActPerTensorFixedPoint, return_quant_tensor=True)]
net = nn.Sequential(q.QuantIdentity(bit_width=8, act_quant=Int8ActPerTensorFixedPoint, return_quant_tensor=True), *conv(3, 8),
                    nn.MaxPool2d(2), *conv(8, 4), nn.Flatten(),
                    q.QuantLinear(128, 5, bias=True, weight_bit_width=8, weight_quant=Int8WeightPerTensorFixedPoint))
frames = torch.rand(8, 3, 8, 8)
net.train()
net(frames)
net.eval()
np.savez("frames.npz", x=frames.numpy(), y=net(frames).detach().numpy())
(export_onnx_qcdq if QCDQ else export_qonnx)(net, args=frames[:1], export_path="model.onnx")
"""
QONNX = BREVITAS + """
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.transformation.qcdq_to_qonnx import QCDQToQuant
from qonnx.transformation.qonnx_to_qcdq import QuantToQCDQ
from qonnx.util.cleanup import cleanup_model
model = cleanup_model(ModelWrapper("model.onnx"))
model.transform(QCDQToQuant() if QCDQ else QuantToQCDQ()).save("model.onnx")
"""


def written(script: str, folder: Path) -> dict[str, np.ndarray]:
    """Run an exporter, which leaves `model.onnx` and `frames.npz`: frames and what the package itself makes of them."""
    environment = {**os.environ, "KERAS_BACKEND": "torch", "OMP_NUM_THREADS": "1"}
    found = subprocess.run([sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True,
                           timeout=600)
    assert found.returncode == 0, f"{found.stderr[-2000:]}\n(`make deep` installs the extra `exporters`)"
    with np.load(folder / "frames.npz") as arrays:
        return dict(arrays)


def planned_exactly(graph: Graph, x: np.ndarray) -> np.ndarray:
    """What the integers answer, after they were planned and compared with ONNX Runtime's, frame by frame."""
    (name,), (output,) = graph.inputs, graph.outputs
    plan = dt.plan(graph, "tx2-c10gx").plan
    assert set(plan.assignment) == {n.name for n in graph.nodes}
    integers = run_integer(graph, store(graph, {name: x}, "frames"))[output]
    scheme, content = graph.tensors[output].scheme, to_onnx(graph)
    answers = integers if scheme is None else dequantize(integers, scheme)
    np.testing.assert_array_equal(answers, np.concatenate([run_onnx(content, {name: frame[None]})[output] for frame in x]))
    return np.asarray(answers)


@pytest.mark.deep("imports torch.export or Keras in a process of its own, and plans")
@pytest.mark.parametrize(("script", "still"), [(TORCH_EXPORT, {}), (KERAS, {"Transpose": 1})], ids=["torch.export", "keras"])
def test_a_float_network_comes_in_whole(tmp_path: Path, script: str, still: dict[str, int]) -> None:
    arrays = written(script, tmp_path)
    graph = read_model(tmp_path / "model.onnx").graph
    assert not [n.name for n in graph.nodes if isinstance(n.op, Opaque)]
    assert Counter(n.op.kind for n in graph.nodes)["Transpose"] == still.get("Transpose", 0)
    found = run_float(graph, {graph.inputs[0]: arrays["x"]})[graph.outputs[0]]
    np.testing.assert_allclose(found, arrays["y"], rtol=1e-4, atol=1e-4)
    planned_exactly(dt.quantize(tmp_path / "model.onnx", arrays["x"]).graph, arrays["x"])


@pytest.mark.deep("imports Brevitas and QONNX in a process of their own, and plans")
@pytest.mark.parametrize("qcdq", [False, True])
@pytest.mark.parametrize("script", [BREVITAS, QONNX], ids=["brevitas", "qonnx"])
def test_a_quantized_network_keeps_its_numbers(tmp_path: Path, script: str, qcdq: bool) -> None:
    arrays = written(f"QCDQ = {qcdq}\n{script}", tmp_path)
    graph = dt.quantize(tmp_path / "model.onnx").graph
    found = planned_exactly(graph, arrays["x"])
    np.testing.assert_allclose(found, arrays["y"], rtol=1e-4, atol=1e-5)
