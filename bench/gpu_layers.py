"""Time the designed layers and three whole networks on a CUDA GPU, and write the record that models are fitted to.

Needs torch, onnx and NumPy alone, so that it runs from the source tree on a machine with nothing else:
`PYTHONPATH=src python bench/gpu_layers.py --record FILE.json`. Interrupted, it continues. The record is fitted
anywhere by `dovetail calibrate --from FILE.json`, and `bench/models.py --gpu FILE.json` compares.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dovetail.measure.campaign import measure
from dovetail.measure.cuda import CudaDevice
from dovetail.measure.energy import gpu_counter
from dovetail.measure.layers import designed_layers
from lib.zoo_graph import network

COMMAND = "PYTHONPATH=src python bench/gpu_layers.py --record FILE.json"
NETWORKS = ("mobilenet-v2", "resnet18", "squeezenet1.1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, required=True, help="the JSON file to write, or to continue")
    options = parser.parse_args()
    device = CudaDevice(gpu_counter())
    print(f"{device.name}: {device.software}", file=sys.stderr)
    record = measure(device, "gpu", designed_layers(), {n: network(n) for n in NETWORKS}, options.record,
                     lambda stage, done, total: print(f"  {done}/{total} {stage}", file=sys.stderr, flush=True),
                     command=COMMAND)
    for name, timing in record.networks.items():
        joules = "" if timing.energy_j is None else f", {timing.energy_j * 1e3:.1f} mJ"
        print(f"{name}: {timing.seconds * 1e6:.1f} us{joules}")


if __name__ == "__main__":
    main()
