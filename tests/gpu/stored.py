"""An output where the kernels left it, as the model has it."""

from __future__ import annotations

import numpy as np

from dovetail.gpu.executor import Compiled
from dovetail.ir import Array
from dovetail.kernels.layers import STORED_OFFSET


def stored(made: Compiled, name: str) -> Array:
    """Read an output from the launcher's buffers, without the lanes that frames travel by."""
    place, tensor = made.lowered.outputs[name], made.graph.tensors[name]
    flat = made.launcher.buffers[place.buffer].cpu().float().numpy()
    maps = flat[:place.pixels * place.pitch].reshape(place.images, place.height, place.width, place.pitch)
    own = maps[..., place.offset:place.offset + place.channels].transpose(0, 3, 1, 2).reshape(place.images, *tensor.shape[1:])
    if tensor.scheme is None:
        return np.array(own, dtype=np.float32)
    return np.asarray(own + (0 if tensor.scheme.signed else STORED_OFFSET), dtype=tensor.scheme.dtype)
