"""What decides a training run beside its data, and how it goes about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import cos, pi
from typing import Any

from dovetail.errors import UsageError
from dovetail.words import counted


@dataclass(frozen=True, slots=True)
class TrainingRecipe:
    """Everything that decides a run beside its data; two runs with equal recipes are the same experiment."""

    network: str
    """A name of `train/networks.py`, or a float ONNX file."""
    bits: str = "float"
    method: str = "lq"
    ends: int = 8
    epochs: int = 200
    batch: int = 128
    rate: float = 0.1
    momentum: float = 0.9
    decay: float = 1e-4
    schedule: str = "cosine"
    warmup: int = 0
    """Epochs over which the rate rises."""
    pad: int = 4
    """Pixels a training image is shifted by at most; 0 leaves images where they are."""
    flip: bool = True
    seed: int = 0
    width: int | None = None
    start: str = ""
    """A model.pt to take weights from where names and shapes agree: a float network, or one of more bits."""
    teacher: str = ""
    """A model.pt of a network in floats, or a float ONNX file, whose answers are learned beside the labels."""
    temperature: float = 1.0
    """What answers are divided by before the teacher's are learned: above one, what it holds for nearly right counts too."""
    precision: str = "tf32"
    """Arithmetic of products on a GPU: float32, tf32, bf16."""
    learn_every: int = 4
    """Steps from one update of all bases to the next; their moving averages count the steps between."""
    mean: str = ""
    deviation: str = ""
    """What a network from a file takes from its images (as bytes over 256) and divides them by, one number or one per channel."""
    size: int | None = None
    """Pixels that a side of every picture is brought to, where images are pictures of any size."""

    def __post_init__(self) -> None:
        for name, allowed in (("schedule", ("cosine", "step")), ("precision", ("float32", "tf32", "bf16"))):
            if getattr(self, name) not in allowed:
                raise UsageError(f"recipe: {name} {getattr(self, name)!r}; {', '.join(allowed)} exist")
        if min(self.epochs, self.batch, self.learn_every) < 1 or min(self.rate, self.temperature) <= 0:
            raise UsageError(f"recipe: {counted(self.epochs, 'epoch')} of batches of {self.batch} at rate {self.rate:g}, "
                             f"temperature {self.temperature:g}; all must be positive")

    def differs(self, written: Mapping[str, Any]) -> list[str]:
        """Names of what is not as a run wrote it down; what was no part of recipes then had its default."""
        return sorted(f.name for f in fields(self) if written.get(f.name, f.default) != getattr(self, f.name))

    def rate_at(self, progress: float) -> float:
        """The rate after a fraction of all epochs."""
        rise = self.warmup / self.epochs
        if progress < rise:
            return self.rate * (progress + 1 / self.epochs) / (rise + 1 / self.epochs)
        if self.schedule == "step":
            return self.rate * 0.1 ** ((progress >= 0.5) + (progress >= 0.75))
        return self.rate * 0.5 * (1 + cos(pi * (progress - rise) / (1 - rise)))


@dataclass(frozen=True, slots=True)
class Pace:
    """How a run goes about its recipe, which changes nothing about what comes out."""

    every: int = 10
    """Epochs between evaluations."""
    minutes: float = 10.0
    """Between checkpoints within an epoch; each evaluation writes one too."""
    workers: int = 0
    """Processes that read images which are not in memory."""
    record: bool = True
    """Let a GPU replay its steps as CUDA graphs; without it every kernel is launched, slower but plain."""
    tests: bool = True
    """Evaluate on the way; else whoever finishes the run does."""

    def __post_init__(self) -> None:
        if self.every < 1 or not self.minutes >= 0 or self.workers < 0:
            raise UsageError(f"--every {self.every}, --minutes {self.minutes:g}, --workers {self.workers}: at least 1 epoch, "
                             "0 minutes and 0 processes are needed")
