"""Integers are right: equal to ONNX Runtime's in every zoo network, kept by imports and builds, accurate beside its int8.

`python bench/numerics.py --json FILE [--part NAME] [options of the part, see --part NAME --help]`.

| part | claim |
|---|---|
| reference | the integer reference equals ONNX Runtime on every tensor of every zoo network (README.md) |
| builds | zoo networks at reduced size, planned, generated and simulated, equal the reference (README.md) |
| imported | models that arrive quantized keep their numbers (docs/method/numerics.md) |
| pretrained | trained networks on photos: float, our integers, ONNX Runtime's int8 (docs/method/peers.md) |
| unseen | networks of other people's packages are imported, planned and quantized (docs/method/peers.md) |

`pretrained` and `unseen` download packages once.
"""

from __future__ import annotations

import sys

from lib.numerics import builds, imported, pretrained, reference, unseen
from lib.parts import Part, run

PARTS: dict[str, Part] = {"reference": reference.main, "builds": builds.main, "imported": imported.main,
                          "pretrained": pretrained.main, "unseen": unseen.main}

if __name__ == "__main__":
    sys.exit(run(__doc__, PARTS, sys.argv[1:]))
