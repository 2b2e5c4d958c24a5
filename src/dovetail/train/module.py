"""PyTorch modules as ONNX: the network of a user's own Python, traced with an example of its input."""

from __future__ import annotations

import inspect
import logging
import sys
import warnings
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from typing import Any

from dovetail.errors import ModelError, UsageError

OPSET = 17
"""Of the files that PyTorch's older exporter writes: one that this package reads without conversion."""


def is_module(model: object) -> bool:
    """Whether something is a PyTorch module or exported program; PyTorch is not imported for that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, (torch.nn.Module, torch.export.ExportedProgram))


def exported(model: Any, example: Any) -> bytes:
    """The ONNX file of a module in evaluation mode, by `torch.export` where onnxscript is installed, else by tracing.

    `example` is an input, or a tuple of them: arrays or tensors with a first dimension for frames, of which one is taken. An
    exported program has its own.

    Raises:
        UsageError: no example, or an exported program without onnxscript.
        ModelError: PyTorch cannot export the module.
    """
    torch = import_module("torch")
    by_export, whole = find_spec("onnxscript") is not None, isinstance(model, torch.export.ExportedProgram)
    if whole and not by_export:
        raise UsageError("model: an exported program is written by onnxscript, which is not installed; run `pip install "
                         "onnxscript`, or give the module and an example")
    if not whole and example is None:
        raise UsageError(f"model: {type(model).__name__} is a PyTorch module, which is traced with an input; pass for example "
                         "example=torch.zeros(1, 3, 224, 224)")
    inputs = () if whole else tuple(torch.as_tensor(x)[:1] for x in (example if isinstance(example, tuple) else (example,)))
    training = not whole and model.training
    buffer = BytesIO()
    how = {} if whole else {"input_names": list(inspect.signature(model.forward).parameters)[:len(inputs)]}
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # of the exporter about itself
            logging.getLogger("torch.onnx").setLevel(logging.ERROR)
            if by_export:
                program = torch.onnx.export(model if whole else model.eval(), inputs, dynamo=True, verbose=False, **how)
                program.save(buffer)
            else:
                torch.onnx.export(model.eval(), inputs, buffer, dynamo=False, opset_version=OPSET, **how)
    except Exception as error:  # whatever the exporter stumbles over is said of the module
        reason = (str(error) or type(error).__name__).strip().splitlines()[0]
        raise ModelError(f"{type(model).__name__}: PyTorch cannot export it ({reason}); export it yourself with "
                         "torch.onnx.export and give the file") from error
    finally:
        if training:
            model.train()
    return buffer.getvalue()
