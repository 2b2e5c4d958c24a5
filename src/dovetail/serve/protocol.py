"""Requests and answers of the Open Inference Protocol v2: JSON, with tensors in it or as bytes behind it.

Requests come from strangers. Everything is checked against the model's signature before it is queued.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn

import numpy as np

from dovetail.document import NATURAL, Anything, Each, FieldPath, Whole, check
from dovetail.errors import BuildError, DovetailError
from dovetail.ir import Array

JSON_BYTES = 8 << 20
"""Most bytes of JSON that are parsed: as Python values they take some 20 times as much. Chosen."""
JSON_NUMBERS = 1 << 20
"""Most numbers of an answer that are written as JSON. Chosen."""
DATATYPES = {"BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "INT8": "int8",
             "INT16": "int16", "INT32": "int32", "INT64": "int64", "FP16": "float16", "FP32": "float32", "FP64": "float64"}
"""The protocol's names of element types; bytes are little-endian."""
NAMES = {element: name for name, element in DATATYPES.items()}
"""The way back."""
PARAMETERS = Each(Anything())
REQUEST = {"id?": str, "parameters?": PARAMETERS,
           "inputs": [{"name": str, "shape": [NATURAL], "datatype": str, "parameters?": PARAMETERS, "data?": Anything()}],
           "outputs?": [{"name": str, "parameters?": PARAMETERS}]}
"""The shape of a request; parameters are checked by their names."""
CONTROL = {"parameters?": PARAMETERS}
"""That of a request to load or unload a model."""
REMEDY = "see the Open Inference Protocol v2"


class RequestError(DovetailError):
    """A request is answered by an error; `status` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class TensorPort:
    """An input or output of a model; `shape` is that of one frame."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    @property
    def frame_bytes(self) -> int:
        return prod(self.shape) * np.dtype(DATATYPES[self.datatype]).itemsize

    @property
    def metadata(self) -> dict[str, Any]:
        return {"name": self.name, "datatype": self.datatype, "shape": [-1, *self.shape]}


@dataclass(frozen=True, slots=True)
class Signature:
    """What a model takes and gives."""

    inputs: tuple[TensorPort, ...]
    outputs: tuple[TensorPort, ...]


@dataclass(frozen=True, slots=True)
class InferRequest:
    """A checked request; `outputs` are names, and whether each is wanted as bytes."""

    id: str | None
    inputs: Mapping[str, Array]
    frames: int
    outputs: Mapping[str, bool]
    timeout_s: float | None


def refuse(message: str) -> NoReturn:
    """Answer a bad request."""
    raise RequestError(400, message)


def parse_request(body: bytes, header_bytes: int | None, signature: Signature, most_frames: int) -> InferRequest:
    """The request in a body; `header_bytes` of it are JSON, all where None."""
    known = _header(body, header_bytes)
    allowed = _parameters(known, "request", ("timeout", "binary_data_output"))
    taken = len(body) if header_bytes is None else header_bytes
    ports = {port.name: port for port in signature.inputs}
    inputs: dict[str, Array] = {}
    for entry in known["inputs"]:
        port = ports.get(entry["name"])
        if port is None or port.name in inputs:
            wrong = "unknown" if port is None else "given twice"
            refuse(f"input {_shown(entry['name'])}: {wrong}; inputs are {', '.join(ports)}")
        size = _parameters(entry, f"input {port.name}", ("binary_data_size",)).get("binary_data_size")
        inputs[port.name] = _bytes_tensor(entry, port, size, body, taken) if size is not None else _json_tensor(entry, port)
        taken += size or 0
    if missing := [name for name in ports if name not in inputs]:
        refuse(f"input {missing[0]}: missing; inputs are {', '.join(ports)}")
    if taken != len(body):
        refuse(f"body: {len(body) - taken:,} bytes beyond those that inputs state; every binary input has a binary_data_size")
    counts = {len(x) for x in inputs.values()}
    if len(counts) > 1:
        refuse(f"inputs of {', '.join(map(str, sorted(counts)))} frames; all inputs of a request have the same number")
    if max(counts) > most_frames:
        refuse(f"{max(counts)} frames; a request has at most {most_frames}, send several")
    outputs = _outputs(known, allowed, signature)
    if sum(max(counts) * prod(p.shape) for p in signature.outputs if outputs.get(p.name) is False) > JSON_NUMBERS:
        refuse(f"outputs of more than {JSON_NUMBERS:,} numbers; ask for them as binary data")
    return InferRequest(known.get("id"), inputs, max(counts), outputs, _timeout(allowed))


def _header(body: bytes, header_bytes: int | None) -> dict[str, Any]:
    """The JSON of a request, of the protocol's shape."""
    if header_bytes is not None and header_bytes > len(body):
        refuse(f"Inference-Header-Content-Length {header_bytes}: beyond the body of {len(body)} bytes")
    text = body if header_bytes is None else body[:header_bytes]
    if len(text) > JSON_BYTES:
        raise RequestError(413, f"{len(text):,} bytes of JSON; at most {JSON_BYTES:,} are read, send tensors as binary data")
    return parse_json(text, REQUEST)


def parse_json(text: bytes, shape: Mapping[str, Any]) -> dict[str, Any]:
    """The object that a text of JSON stands for, of a shape."""
    def no_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is no number of JSON")

    try:
        known: dict[str, Any] = json.loads(text.decode("utf-8"), parse_constant=no_constant)
        check(known, shape, FieldPath("request", REMEDY))
    except (ValueError, RecursionError) as error:
        refuse(f"request: not readable as JSON ({_shown(str(error))})")
    except BuildError as error:
        refuse(str(error))
    return known


def _parameters(entry: Mapping[str, Any], where: str, known: Sequence[str]) -> Mapping[str, Any]:
    """The parameters of a part of a request; others than those that are known are refused."""
    found: Mapping[str, Any] = entry.get("parameters", {})
    for name in found:
        if name not in known:
            refuse(f"{where}: parameter {_shown(name)} is not supported; {' and '.join(known)} can be given")
    size = found.get("binary_data_size", 0)
    if type(size) is not int or size < 0:
        refuse(f"{where}: binary_data_size {_shown(size)}; a number of bytes is needed")
    for name in ("binary_data", "binary_data_output"):
        if type(found.get(name, False)) is not bool:
            refuse(f"{where}: {name} {_shown(found[name])}; true or false is needed")
    return found


def _shape(entry: Mapping[str, Any], port: TensorPort) -> tuple[int, ...]:
    """The shape of an input, which is the port's with at least one frame."""
    if entry["datatype"] != port.datatype:
        refuse(f"input {port.name}: datatype {_shown(entry['datatype'])}; {port.datatype} is needed")
    shape = tuple(entry["shape"])
    if shape[1:] != port.shape or not shape or shape[0] < 1:
        refuse(f"input {port.name}: shape {_shown(list(shape))}; [frames, {', '.join(map(str, port.shape))}] is needed")
    return shape


def _bytes_tensor(entry: Mapping[str, Any], port: TensorPort, size: int, body: bytes, begin: int) -> Array:
    """An input whose bytes stand behind the JSON."""
    shape, element = _shape(entry, port), np.dtype(DATATYPES[port.datatype]).newbyteorder("<")
    if "data" in entry:
        refuse(f"input {port.name}: data and binary_data_size; only one of them can be given")
    if size != prod(shape) * element.itemsize:
        refuse(f"input {port.name}: binary_data_size {size:,}; its shape takes {prod(shape) * element.itemsize:,} bytes")
    if begin + size > len(body):
        refuse(f"input {port.name}: {len(body) - begin:,} of its {size:,} bytes are in the body; the request is truncated")
    return _finite(np.frombuffer(body, element, prod(shape), begin).reshape(shape), port)


def _json_tensor(entry: Mapping[str, Any], port: TensorPort) -> Array:
    """An input whose elements stand in the JSON, flat or nested."""
    shape, element = _shape(entry, port), np.dtype(DATATYPES[port.datatype])
    if type(entry.get("data")) is not list:
        refuse(f"input {port.name}: no data; a list of numbers or a binary_data_size is needed")
    try:
        x = np.array(entry["data"])
    except ValueError:
        refuse(f"input {port.name}: data of uneven lists; numbers of shape {_shown(list(shape))} are needed")
    if x.shape not in (shape, (prod(shape),)):
        refuse(f"input {port.name}: data of shape {_shown(list(x.shape))}; {prod(shape):,} numbers are needed, flat or nested")
    if x.dtype.kind not in {"f": "fiu", "b": "b"}.get(element.kind, "iu"):
        refuse(f"input {port.name}: data that are not numbers of {port.datatype}")
    if element.kind in "iu" and not (np.iinfo(element).min <= x.min() and x.max() <= np.iinfo(element).max):
        refuse(f"input {port.name}: numbers beyond {port.datatype}")
    with np.errstate(over="ignore"):
        return _finite(x.astype(element).reshape(shape), port)


def _finite(x: Array, port: TensorPort) -> Array:
    """An input without NaN and infinities, which no integer stands for."""
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        refuse(f"input {port.name}: NaN or infinite values; finite numbers of {port.datatype} are needed")
    return x


def _outputs(known: Mapping[str, Any], allowed: Mapping[str, Any], signature: Signature) -> dict[str, bool]:
    """Which outputs are wanted, and whether as bytes."""
    as_bytes, names = allowed.get("binary_data_output", False), [port.name for port in signature.outputs]
    wanted: dict[str, bool] = {}
    for entry in known.get("outputs", ()):
        name = entry["name"]
        if name not in names or name in wanted:
            refuse(f"output {_shown(name)}: {'asked for twice' if name in wanted else 'unknown'}; outputs are {', '.join(names)}")
        wanted[name] = _parameters(entry, f"output {name}", ("binary_data",)).get("binary_data", as_bytes)
    return wanted or dict.fromkeys(names, as_bytes)


def _timeout(parameters: Mapping[str, Any]) -> float | None:
    """Seconds that a client waits; it states microseconds."""
    if "timeout" not in parameters:
        return None
    try:
        check(parameters["timeout"], Whole(1), FieldPath("request", REMEDY, "parameters.timeout"))
    except BuildError as error:
        refuse(str(error))
    return float(parameters["timeout"]) / 1e6


def write_answer(name: str, version: str, request: InferRequest, results: Mapping[str, Array]) -> tuple[bytes, int | None]:
    """The body of an answer, and how many bytes of it are JSON where others follow."""
    entries, behind = [], []
    for output, as_bytes in request.outputs.items():
        x = results[output]
        entry = {"name": output, "datatype": NAMES[x.dtype.name], "shape": list(x.shape)}
        if as_bytes:
            behind.append(x.astype(x.dtype.newbyteorder("<"), copy=False).tobytes())
            entries.append({**entry, "parameters": {"binary_data_size": len(behind[-1])}})
        else:
            entries.append({**entry, "data": x.ravel().tolist()})
    document = {"model_name": name, "model_version": version, "outputs": entries}
    if request.id is not None:
        document["id"] = request.id
    try:
        text = json.dumps(document, allow_nan=False).encode()
    except ValueError:
        raise RequestError(500, "results with NaN or infinite values, which JSON cannot hold; ask for binary data") from None
    return b"".join([text, *behind]), len(text) if behind else None


def _shown(value: object) -> str:
    """What a stranger sent, short and printable."""
    text = repr(value) if type(value) is not str else value
    return "".join(c if c.isprintable() else "?" for c in text[:60]) + ("…" if len(text) > 60 else "")
