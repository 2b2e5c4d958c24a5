"""Pooling word by word: the window of a folded engine, one channel of it after the other, without weights."""

from __future__ import annotations

from dovetail.fpga.engines.layers import Compute, MappedLayer, close, start
from dovetail.fpga.engines.sequencer import sequence
from dovetail.fpga.engines.stream import MAY_STEP, Engine, Staged, read_stream
from dovetail.fpga.engines.words import word_taps
from dovetail.hardware.folds import Channels, Fold, Loops
from dovetail.hardware.streaming import FoldedRaster, Raster
from dovetail.ir import Window


def pool_engine(layer: MappedLayer, window: Window, fill: int, compute: Compute) -> Engine:
    """An engine that takes a clock per word; `compute` gets the taps of its channels, `fill` where they lie in the padding."""
    (form,) = layer.inputs
    raster, loops = Raster(window, form.height, form.width), Loops(Channels(form.channels, 1, 1), Fold(form.fields, 1, 1))
    assert raster.masks_suffice
    folded = FoldedRaster(raster, loops)
    module, pipeline = start(layer)
    in_valid, in_data = read_stream(module, "in0", form)
    slot = sequence(module, raster, loops, MAY_STEP, in_valid)
    module.output("in0_ready", slot.ready)
    taps = word_taps(pipeline, folded, loops, form, slot, in_data, fill)
    values = compute(pipeline, {(group, i, j): tap for (group, _, i, j), tap in taps.items()})
    return close(layer, module, pipeline, Staged(slot.ends, 0), values, folded.input_steps(), folded.output_steps(), folded.steps)
