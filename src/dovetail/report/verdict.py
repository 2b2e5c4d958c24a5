"""The verdict on a plan in words: its figures with their errors, beside single devices, how near to the best, what limits it.

Terminal and report say the same; a plan is given as `collect.plan_fields` has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.partition.plan import CONFIDENCE
from dovetail.report import units
from dovetail.words import counted

BETTER = {"latency": ("faster", "slower"), "energy": ("less energy", "more energy"), "edp": ("better", "worse"),
          "throughput": ("more frames", "fewer frames")}
"""How a ratio of objectives reads for each goal."""
ENGINES = " with these engines"
"""What a bound leaves out where it was decided before what FPGAs become: other engines than the plan has."""
ERRORS = ("errors of one device's model add up over its layers, those of different devices are independent; energy errs as time "
          "does, links are taken as the board states them")
"""Under which assumptions the intervals of a verdict hold."""


def verdict(plan: Mapping[str, Any]) -> str:
    """All that is to be said of a plan, in one sentence."""
    return "; ".join(filter(None, (figures(plan), compared(plan), proof(plan), limited(plan))))


def figures(plan: Mapping[str, Any]) -> str:
    """Frames per second, latency and energy of a frame, each with its error."""
    known = plan["intervals"]
    found = [frames(plan)] if plan["interval_s"] else []
    found += [units.seconds(plan["latency_s"]) + error(plan["latency_s"], known.get("latency_s")),
              units.joules(plan["energy_j"]) + error(plan["energy_j"], known.get("energy_j"))]
    product = f", energy-delay product {units.objective(plan['objective'], 'edp')}" if plan["goal"] == "edp" else ""
    product += error(plan["objective"], known.get("objective")) if product else ""
    confidence = f", at {100 * CONFIDENCE:g} % confidence" if known else ""
    return f"{', '.join(found[:-1])} and {found[-1]} per frame{product}{confidence}"


def frames(plan: Mapping[str, Any]) -> str:
    """Pipelined frames per second; the longest interval is the lowest rate."""
    low, high = plan["intervals"].get("interval_s", (0.0, 0.0))
    return units.rate(plan["interval_s"]) + error(1 / plan["interval_s"], (1 / high, 1 / low) if low > 0 else None)


def error(value: float, ends: tuple[float, float] | None) -> str:
    """An interval as percents of the value between its ends: ` (±4 %)`, ` (−33 to +50 %)`."""
    if ends is None or not value:
        return ""
    if ends[0] == value == ends[1]:
        return " (set by links, which state no error)"
    less, more = (units.significant(100 * abs(end / value - 1), 2) for end in ends)
    return f" (±{more} %)" if less == more else f" (−{less} to +{more} %)"


def best_single(plan: Mapping[str, Any]) -> tuple[str, float] | None:
    """The best plan that uses one kind of device only, among the baselines."""
    alone = [(k, v) for k, v in plan["baselines"].items() if k in ("cpu", "gpu", "fpga") and v is not None]
    return min(alone, key=lambda kv: kv[1], default=None)


def compared(plan: Mapping[str, Any]) -> str:
    """The plan beside the CPU alone and the best single device."""
    beside = [("cpu", plan["baselines"].get("cpu")), best_single(plan) or ("", None)]
    pins = " without pins" if plan["pinned"] else ""
    return ", ".join(f"{ratio(value / plan['objective'], *BETTER[plan['goal']])} {name} alone{pins} "
                     f"({units.rate(value) if plan['goal'] == 'throughput' else units.objective(value, plan['goal'])})"
                     for name, value in dict(beside).items() if value and plan["objective"])


def ratio(value: float, better: str, worse: str) -> str:
    """How many times better than something else."""
    if abs(value - 1) < 0.005:
        return "as good as"
    return f"{units.significant(value)}× {better} than" if value > 1 else f"{units.significant(1 / value)}× {worse} than"


def proof(plan: Mapping[str, Any]) -> str:
    """How good a plan is, and among which: proven best or how near, what was given up on purpose, and around which pins."""
    if plan["pinned"] and plan["pinned"] == plan["layers"]:
        return "every node where it was pinned"
    spared = f" before {units.percent(plan['given_up'])} was given up for area" if plan["given_up"] > 0 else ""
    around = f" around {counted(plan['pinned'], 'pinned node')}" if plan["pinned"] else ""
    head = "proven optimal" if plan["proven"] else f"within {units.percent(plan['gap'])} of the best possible"
    beyond = plan["beyond"] if plan["proven"] else 0.0
    between = f", then {units.percent(beyond)} better by cuts between them{',' * bool(spared or around)}" if beyond > 0 else ""
    return f"{head} over {scope(plan)}{between}{spared}{around}"


def scope(plan: Mapping[str, Any]) -> str:
    """Over which plans the bound holds."""
    covered, _, rest = plan["bound_covers"].partition(" (see notes)")
    engines, _, fewer = rest.partition(";")
    return f"{'some of the' if 'fewer' in fewer else 'all'} {covered}{engines or (ENGINES if plan['resources'] else '')}"


def limited(plan: Mapping[str, Any]) -> str:
    """What limits a plan most; empty where nobody asked."""
    found = plan["limited_by"]
    return "" if found is None else f"limited by {found['name']} ({limited_share(plan)})"


def limited_share(plan: Mapping[str, Any]) -> str:
    """How much what limits a plan takes of it, or of a resource how full it is."""
    found, goal = plan["limited_by"], plan["goal"]
    if found["kind"] == "resource":
        return f"{units.percent(found['share'])} used"
    if goal == "throughput" and plan["mode"] != "sequential":
        return "it sets the pace"
    return f"{units.percent(found['share'], 2)} of the {'energy' if goal == 'energy' else 'latency'}"


def measured_sentence(measured: Mapping[str, Any]) -> str:
    """What a run reached, beside what the plan says."""
    virtual, planned = measured["virtual_frames_per_s"], measured["planned"]["frames_per_s"]
    said = f"measured over {counted(measured['frames'], 'frame')} with {measured['in_flight']} in flight: " \
           f"{_per_s(measured['frames_per_s'])} in this machine's time"
    said += "" if virtual is None else f", {_per_s(virtual)} in virtual time, by the clocks of simulated boards"
    return f"{said}; planned {_per_s(planned)}" + "".join(f"; {failure}" for failure in measured["failures"])


def _per_s(frames: float) -> str:
    return units.rate(1 / frames) if frames > 0 else "no frames/s"
