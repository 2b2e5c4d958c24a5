"""Networks that GPU benchmarks measure, and batches of those that tiles are timed of."""

from __future__ import annotations

NETWORK = "mobilenet-v2"
"""The one whose figures are goals; pairs of layers are its own."""
FIRST = ("mobilenet-v1", "proxylessnas-mobile", "efficientnet-lite0")
"""Others whose figures are goals."""
SECOND = ("shufflenet-v2", "squeezenet1.1", "xception", "ceit-blocks", "cvt-blocks", "mnasnet")
"""Networks that are measured where there is time."""
CASES = (("mobilenet-v2", 1), ("mobilenet-v2", 64), ("efficientnet-lite0", 1), ("mobilenet-v1", 8))
"""Networks and batches that costs of kernels are fitted to."""
UNSEEN = (("mobilenet-v3-large", 1), ("resnet18", 8))
"""Networks to judge with: none of them is fitted."""
