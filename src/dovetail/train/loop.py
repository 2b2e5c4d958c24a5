"""One training run: a recipe, images as bytes, steps recorded as a CUDA graph where there is one, resumable.

A run is a folder: `checkpoint.pt` while it lasts, `model.pt`, `model.onnx` and `result.json` when it is done. Everything is
written under a temporary name and renamed; a run that was interrupted goes on from its last checkpoint and gives the same
recipe's result.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from dovetail.errors import UsageError
from dovetail.files import replace_bytes
from dovetail.train.batches import in_order, training_batches
from dovetail.train.data import DataSet, ImageSource, Labels, spread
from dovetail.train.imported import load_network
from dovetail.train.networks import Precision, build
from dovetail.train.quantizers import learn_every
from dovetail.train.recipe import Pace, TrainingRecipe
from dovetail.words import counted

WARM_STEPS = 8
"""Steps before the first is recorded: both kinds, with and without an update of the bases, have then run."""
TOP = 5
"""Of so many largest answers one may be the right one."""
Tensor = Any
CHECKPOINT = "checkpoint.pt"
"""File of a run that lasts, by which it is resumed."""
Heard = Callable[[str], None]
Seen = list[dict[str, float]]
"""What evaluated epochs came to."""


@dataclass(frozen=True, slots=True)
class Hits:
    """Shares of images whose class has the largest answer, and one of the five largest (None with five classes or fewer)."""

    top1: float
    top5: float | None

    def named(self, name: str) -> dict[str, float]:
        """As entries of a result."""
        return {f"{name}_accuracy": self.top1, **({} if self.top5 is None else {f"{name}_top5": self.top5})}

    def __str__(self) -> str:
        return f"{self.top1:.2%}" + ("" if self.top5 is None else f" (among five: {self.top5:.2%})")


class Descent:
    """Stochastic gradient descent with Nesterov's momentum; the rate is a tensor, so that a recorded step can follow it."""

    def __init__(self, network: Any, recipe: TrainingRecipe, device: Any) -> None:
        self.weights = [p for p in network.parameters() if p.requires_grad]
        self.decays = [recipe.decay if p.ndim > 1 else 0.0 for p in self.weights]
        self.speed = [torch.zeros_like(p) for p in self.weights]
        self.momentum, self.rate = recipe.momentum, torch.full((), recipe.rate, device=device)

    @torch.no_grad()
    def step(self) -> None:
        """All tensors at once, a few launches in all."""
        gradients = torch._foreach_add([w.grad for w in self.weights], torch._foreach_mul(self.weights, self.decays))
        torch._foreach_mul_(self.speed, self.momentum)
        torch._foreach_add_(self.speed, gradients)
        torch._foreach_add_(gradients, self.speed, alpha=self.momentum)
        torch._foreach_mul_(gradients, self.rate)
        torch._foreach_sub_(self.weights, gradients)


def distance(answer: Tensor, known: Tensor, temperature: float) -> Tensor:
    """How far answers are from a teacher's (Kullback and Leibler), scaled so that its gradients do not fade with temperature."""
    ours, theirs = (functional.log_softmax(x / temperature, 1) for x in (answer, known))
    return temperature**2 * functional.kl_div(ours, theirs, reduction="batchmean", log_target=True)


class Stepper:
    """One training step; on a GPU it is recorded once and replayed, which saves a thousand launches."""

    def __init__(self, network: Any, teacher: Any, recipe: TrainingRecipe, device: Any, shape: tuple[int, ...],
                 record: bool) -> None:
        self.network, self.teacher, self.recipe, self.device = network, teacher, recipe, device
        self.descent = Descent(network, recipe, device)
        self.images = torch.zeros(shape, dtype=torch.uint8, device=device)
        self.labels = torch.zeros(shape[0], dtype=torch.long, device=device)
        self.loss = torch.zeros((), device=device)
        self.recorded: dict[bool, Any] = {}
        self.record = record and device.type == "cuda"
        self.steps = 0

    def _step(self) -> None:
        for weight in self.descent.weights:
            weight.grad = None
        x = (self.images.float() / 256).contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.recipe.precision == "bf16"):
            answer = self.network(x)
            if self.teacher is not None:
                with torch.no_grad():
                    known = self.teacher(x).float()
        loss = functional.cross_entropy(answer.float(), self.labels)
        if self.teacher is not None:
            loss = 0.5 * loss + 0.5 * distance(answer.float(), known, self.recipe.temperature)
        loss.backward()
        self.descent.step()
        self.loss.copy_(loss.detach())

    def __call__(self, images: Tensor, labels: Tensor, rate: float, learning: bool) -> None:
        """One step; `learning` says whether bases are updated in it."""
        self.images.copy_(images)
        self.labels.copy_(labels)
        self.descent.rate.fill_(rate)
        if learning not in self.recorded:
            learn_every(self.network, self.recipe.learn_every if learning else 0)
        if not self.record:
            self._step()
        elif self.steps < WARM_STEPS:
            self._aside(self._step)
        else:
            if learning not in self.recorded:
                torch.cuda.synchronize()
                self._aside(lambda: self._record(learning))
            self.recorded[learning].replay()
        self.steps += 1

    def _record(self, learning: bool) -> None:
        """On this run's own stream: what libraries keep for a stream would else be shared by graphs that run side by side."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            self._step()
        self.recorded[learning] = graph

    def _aside(self, work: Callable[[], None]) -> None:
        """Work on a stream that is not the default one, as recording wants it; libraries choose kernels and allocate now."""
        current = torch.cuda.current_stream()
        if current != torch.cuda.default_stream():
            return work()
        side = torch.cuda.Stream()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            work()
        current.wait_stream(side)


@torch.no_grad()
def accuracy(network: Any, source: ImageSource, rows: Labels, device: Any, workers: int = 0, batch: int = 1000) -> Hits:
    """The share of images, by number, whose label has the largest answer, or one of the five largest, in float32 throughout."""
    network.eval()
    right = torch.zeros(2, dtype=torch.long, device=device)
    for images, labels in in_order(source, rows, batch, workers):
        answer = network(images.to(device).float() / 256)
        best = answer.topk(min(TOP, answer.shape[1]), dim=1).indices == labels.to(device).long()[:, None]
        right += torch.stack([best[:, 0].sum(), best.sum()])
    first, five = right.tolist()
    return Hits(first / len(rows), five / len(rows) if source.labels.max() >= TOP else None)


def save(path: Path, content: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    replace_bytes(path, buffer.getvalue())


def load(path: str | Path, device: Any) -> dict[str, Any]:
    try:
        content = torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; give the model.pt of a finished run") from None
    except (RuntimeError, EOFError, ValueError, OSError) as error:
        raise UsageError(f"{path}: not a checkpoint of a run ({str(error).splitlines()[0]}); remove it or give another") from None
    if not isinstance(content, dict) or "network" not in content:
        raise UsageError(f"{path}: holds no network; give the model.pt of a finished run")
    return content


def take_weights(network: Any, path: str, device: Any) -> int:
    """Copy what another run learned, where name and shape agree; returns how many tensors did."""
    found, own = load(path, device)["network"], network.state_dict()
    shared = {k: v for k, v in found.items() if k in own and own[k].shape == v.shape}
    if not any(k.endswith("weight") and v.ndim > 1 for k, v in shared.items()):
        raise UsageError(f"{path}: no weights of this network in it; start from a run of the same network and width")
    network.load_state_dict({**own, **shared})
    return len(shared)


def train(recipe: TrainingRecipe, precision: Precision, images: DataSet, folder: Path, device: Any, say: Heard,
          pace: Pace | None = None) -> tuple[Any, Seen]:
    """Run or resume a recipe; the network in evaluation mode and one entry per evaluated epoch."""
    course = course_of(recipe, precision, images, folder, device, say, pace)
    for _ in course.steps(say):
        pass
    return course.network.eval(), course.seen


def course_of(recipe: TrainingRecipe, precision: Precision, images: DataSet, folder: Path, device: Any, say: Heard,
              pace: Pace | None = None) -> Course:
    """A run that begins, or goes on where its folder's checkpoint stands."""
    torch.manual_seed(recipe.seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = recipe.precision != "float32"
    torch.backends.cudnn.benchmark = device.type == "cuda"
    network = network_of(recipe, recipe.network, precision, images)
    if recipe.start:
        say(f"{counted(take_weights(network, recipe.start, 'cpu'), 'tensor')} from {recipe.start}")
    network = network.to(device, memory_format=torch.channels_last)
    course = Course(recipe, network, _teacher(recipe, images, device), images, folder, device, pace or Pace())
    course.resume(say)
    return course


class Course:
    """A run from one checkpoint to the next."""

    def __init__(self, recipe: TrainingRecipe, network: Any, teacher: Any, images: DataSet, folder: Path, device: Any,
                 pace: Pace) -> None:
        count = len(images.train.labels)
        batch = min(recipe.batch, count)
        self.recipe, self.network, self.test, self.pace, self.device = recipe, network, images.test, pace, device
        self.folder, self.per_epoch = folder, count // batch
        self.stepper = Stepper(network, teacher, recipe, device, (batch, *images.shape), pace.record)
        self.batches = training_batches(images, recipe, device, pace.workers)
        self.epoch, self.step, self.seen = 0, 0, Seen()
        self.saved = time.monotonic()

    def steps(self, say: Heard) -> Generator[None]:
        """All steps that are left, one at a time; whoever closes this before the end leaves a checkpoint."""
        try:
            while self.epoch < self.recipe.epochs:
                yield from self._one_epoch(say)
        except GeneratorExit:
            self.save()
            raise

    def _one_epoch(self, say: Heard) -> Generator[None]:
        """The epoch at hand from its next step on, and its evaluation where it is due."""
        recipe, started = self.recipe, time.monotonic()
        self.network.train()
        for x, y in self.batches.epoch(self.epoch, self.step):
            number = self.epoch * self.per_epoch + self.step
            self.stepper(x, y, recipe.rate_at(number / self.per_epoch / recipe.epochs), number % recipe.learn_every == 0)
            self.step += 1
            if time.monotonic() - self.saved >= 60 * self.pace.minutes and self.step < self.per_epoch:
                self.save()
            yield
        loss = float(self.stepper.loss)
        if loss != loss:
            raise UsageError(f"{self.folder}: the loss became no number in epoch {self.epoch + 1}; use a smaller --rate")
        self.epoch, self.step = self.epoch + 1, 0
        if self.pace.tests and (self.epoch % self.pace.every == 0 or self.epoch == recipe.epochs):
            found = accuracy(self.network, self.test, spread(self.test, None), self.device, self.pace.workers)
            spent = time.monotonic() - started
            self.seen.append({"epoch": self.epoch, "loss": loss, **found.named("test"), "epoch_s": spent})
            say(f"epoch {self.epoch} of {recipe.epochs}: loss {loss:.4f}, test accuracy {found}, {spent:.1f} s")
            self.save()

    def save(self) -> None:
        """Everything by which a run goes on as if it had not been interrupted."""
        save(self.folder / CHECKPOINT, {
            "network": self.network.state_dict(), "speed": self.stepper.descent.speed, "epoch": self.epoch, "step": self.step,
            "recipe": asdict(self.recipe), "seen": self.seen})
        self.saved = time.monotonic()

    def resume(self, say: Heard) -> None:
        """Go on from the folder's checkpoint where there is one."""
        path = self.folder / CHECKPOINT
        if not path.is_file():
            return
        content = load(path, self.device)
        if changed := self.recipe.differs(content.get("recipe", {})):
            raise UsageError(f"{path}: the checkpoint of another recipe ({', '.join(changed)} differ); "
                             "choose another folder or remove it")
        self.network.load_state_dict(content["network"])
        for own, kept in zip(self.stepper.descent.speed, content["speed"], strict=True):
            own.copy_(kept)
        self.epoch, self.step, self.seen = int(content["epoch"]), int(content.get("step", 0)), list(content["seen"])
        within = f" and {counted(self.step, 'step')} of the next" if self.step else ""
        say(f"resumed after epoch {self.epoch}{within}")


def network_of(recipe: TrainingRecipe, name: str, precision: Precision, images: DataSet) -> Any:
    """An untrained network by its name, or that of a float ONNX file."""
    if name.endswith(".onnx"):
        return load_network(name, precision, images.shape, images.classes, recipe.mean, recipe.deviation)
    return build(name, precision, images.shape, images.classes, recipe.width)


def _teacher(recipe: TrainingRecipe, images: DataSet, device: Any) -> Any:
    if not recipe.teacher:
        return None
    if recipe.teacher.endswith(".onnx"):
        teacher = network_of(recipe, recipe.teacher, Precision(), images)
    else:
        own = load(recipe.teacher, "cpu").get("recipe", {})
        if own.get("bits", "float") != "float":
            raise UsageError(f"{recipe.teacher}: a network of {own['bits']}; a teacher is a float run's model.pt or a float ONNX"
                             " file")
        same = replace(recipe, width=own.get("width", recipe.width))
        teacher = network_of(same, own.get("network", recipe.network), Precision(), images)
        take_weights(teacher, recipe.teacher, "cpu")
    return teacher.to(device, memory_format=torch.channels_last).eval()
