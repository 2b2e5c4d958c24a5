"""Calibration data: the samples that decide scales, from a file or, with a warning, from a seed."""

from __future__ import annotations

import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dovetail.errors import UsageError
from dovetail.ir import Array, Graph
from dovetail.ir.folder import Normalisation
from dovetail.numerics.fixed import reach, saturated
from dovetail.words import counted

UNREADABLE = (ValueError, TypeError, KeyError, IndexError, OSError, EOFError, MemoryError, RuntimeError, SyntaxError,
              OverflowError, AttributeError, zipfile.BadZipFile, zlib.error, tokenize.TokenError)
"""What NumPy and zipfile raise on damaged files (NotImplementedError is a RuntimeError)."""

MAGIC = (b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")
"""How .npy files, .npz files and empty .npz files begin."""

Calibration = str | Path | Array | Mapping[str, Array]
"""Where samples come from: a file, the frames of the only input, or frames by the names of inputs."""

CLIPPED_SHARE = 0.01
"""Of a frame's values: from here on it is said that they are clipped. Scales of least error saturate rare values on purpose."""
MAX_INFLATED_BYTES = 1 << 30
"""Bytes of all arrays in one file; a thousand images of 224 x 224 in float32 are 0.6 GB."""
KEPT_SAMPLES = 64
"""How many samples a build stores at least, for `verify`."""
KEPT_VALUES = 1 << 24
"""How many values of samples a build stores beyond those, so that `evaluate` can calibrate others as it was calibrated."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Float inputs by tensor name, one sample per leading index; `note` warns where they are not the user's."""

    values: Mapping[str, Array]
    source: str
    note: str = ""

    @property
    def count(self) -> int:
        return len(next(iter(self.values.values())))

    @property
    def kept(self) -> dict[str, Array]:
        """The samples a build stores: all of them where they are small, else the first ones."""
        most = max(KEPT_SAMPLES, KEPT_VALUES * self.count // max(1, sum(x.size for x in self.values.values())))
        return {name: x[:most] for name, x in self.values.items()}


SYNTHETIC_MACS = 2 * 10**10
"""Multiply-adds spent on synthetic calibration, about: large networks get fewer samples, never fewer than two."""


def synthetic(graph: Graph, count: int | None = None, seed: int = 0, normalisation: Normalisation | None = None) -> Samples:
    """Seeded uniform inputs in [0, 1), or what they become by the model's own normalisation; up to 32 unless told otherwise."""
    if count is None:
        count = min(32, max(2, SYNTHETIC_MACS // max(graph.macs, 1)))
    rng = np.random.default_rng(seed)
    values = {name: rng.random((count, *graph.shape(name)[1:]), dtype=np.float32) for name in graph.inputs}
    if normalisation is not None:
        values = {name: normalisation.frames(x) for name, x in values.items()}
    return Samples(values, f"synthetic, seed {seed}",
                   "no calibration data was given: scales come from synthetic inputs, and accuracy on real data is unknown; "
                   "pass --calibration X.npz")


def samples_of(calibration: Calibration | None, graph: Graph, normalisation: Normalisation | None = None) -> Samples:
    """The samples that a file or arrays hold; synthetic ones where there are none."""
    if calibration is None:
        return synthetic(graph, normalisation=normalisation)
    if isinstance(calibration, str | Path):
        return load_samples(calibration, graph)
    named = calibration if isinstance(calibration, Mapping) else {"x": calibration}
    return Samples(_of_inputs({name: np.asarray(x) for name, x in named.items()}, graph, "calibration"), "arrays")


def load_samples(path: str | Path, graph: Graph) -> Samples:
    """Samples from an .npz: key `x` for a network with one input, or one key per input name."""
    path = Path(path)
    return Samples(_of_inputs(load_arrays(path), graph, str(path)), path.name)


def _of_inputs(arrays: Mapping[str, Array], graph: Graph, where: str) -> dict[str, Array]:
    """Frames for every input of a graph; UsageError where some are missing or do not fit."""
    values: dict[str, Array] = {}
    for name in graph.inputs:
        key = name if name in arrays else "x"
        if key not in arrays or (key == "x" and len(graph.inputs) > 1 and name not in arrays):
            raise UsageError(f"{where}: no samples for input {name}; store them under the key 'x' "
                             f"(or {', '.join(repr(n) for n in graph.inputs)}), found {sorted(arrays)}")
        values[name] = frames_for(arrays[key], graph, name, where)
    if len({v.shape[0] for v in values.values()}) != 1:
        raise UsageError(f"{where}: inputs have different sample counts; every input needs one row per sample")
    return values


def clipped_notes(graph: Graph, inputs: Mapping[str, Array], where: str) -> tuple[str, ...]:
    """What is to be said of float frames whose values the integers of a quantized graph's inputs do not reach."""
    found = []
    for name in graph.inputs:
        scheme, x = graph.tensors[name].scheme, frames_for(np.asarray(inputs[name]), graph, name, where)
        if scheme is None:
            continue
        clipped = saturated(x, scheme).reshape(len(x), -1)
        frames = int((clipped.mean(axis=1) >= CLIPPED_SHARE).sum())
        if frames:
            low, high = (float(np.ravel(v)[0]) for v in reach(scheme, x.ndim))
            least, most = float(x.min()), float(x.max())
            found.append(f"{where}: {clipped.mean():.1%} of the values of input {name} are clipped, in "
                         f"{counted(frames, 'frame')} of {len(x):,}: they reach from {least:g} to {most:g}, its integers "
                         f"from {low:g} to {high:g}; scale them as the samples were that the model was calibrated with")
    return tuple(found)


def constant_notes(samples: Samples) -> tuple[str, ...]:
    """What is to be said of calibration that shows one value alone, such as zeros: it tells nothing of ranges."""
    return tuple(f"{samples.source}: input {name} is {float(x.flat[0]):g} everywhere in {counted(len(x), 'sample')}, so that "
                 "scales mean nothing and accuracy is unknown; calibrate with real samples"
                 for name, x in samples.values.items() if x.size and x.min() == x.max())


def load_arrays(path: Path) -> dict[str, Array]:
    """The arrays of an .npz (or a single .npy under the key `x`); pickled content is refused."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file; give an .npz with key 'x', one sample per row")
    try:
        with warnings.catch_warnings(), path.open("rb") as stream:
            warnings.simplefilter("ignore")  # what a damaged header makes NumPy suspect is said below
            loaded = np.load(stream, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {"x": loaded}
            with loaded:
                # By what it says it inflates to, before anything is; NumPy reads no more than that.
                total = sum(member.file_size for member in loaded.zip.infolist())
                if total > MAX_INFLATED_BYTES:
                    raise UsageError(f"{path}: inflates to {total / 2**30:.1f} GiB; at most {MAX_INFLATED_BYTES / 2**30:g} GiB "
                                     "of samples are read, store fewer")
                return {k: loaded[k] for k in loaded.files}
    except UsageError:
        raise
    except UNREADABLE as error:
        raise UsageError(f"{path}: not a readable .npz or .npy file ({_reason(path, error)}); "
                         "save it with numpy.savez_compressed") from None


def _reason(path: Path, error: Exception) -> str:
    """Why an array file cannot be read, in words of ours where NumPy's speak of pickles, which are never read."""
    said = str(error).splitlines()[0] if str(error) else type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    if "pickle" not in said and not isinstance(error, EOFError):
        return said
    with path.open("rb") as stream:
        start = stream.read(max(map(len, MAGIC)))
    if not start:
        return "it is empty"
    return "it holds Python objects, not numbers" if start.startswith(MAGIC) else "it does not begin as one"


def frames_for(x: Array, graph: Graph, name: str, where: str) -> Array:
    """Check that an array holds finite frames of a graph input; a single frame without batch is accepted."""
    wanted = graph.shape(name)
    if x.shape == wanted[1:]:
        x = x[None]
    if x.ndim != len(wanted) or x.shape[1:] != wanted[1:] or x.shape[0] == 0:
        raise UsageError(f"{where}: array of shape {list(x.shape)} for input {name}; "
                         f"[samples, {', '.join(map(str, wanted[1:]))}] is needed")
    if x.dtype.kind not in "fiub":
        raise UsageError(f"{where}: array of type {x.dtype} for input {name}; numbers are needed")
    if not np.all(np.isfinite(x)):
        raise UsageError(f"{where}: input {name} contains NaN or infinite values; clean the data first")
    return x
