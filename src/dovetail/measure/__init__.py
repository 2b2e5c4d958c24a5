"""Measuring devices: a designed set of layers, timed on a CPU or GPU, with energy where a counter can be read.

`layers` and `campaign` need NumPy alone and `cuda` imports PyTorch when it is used, so that measuring works on a
machine with nothing else installed; the records are fitted anywhere (`dovetail calibrate --from`).
"""
