"""Plans and certificates changed into false ones, by a number: bytes of either file, or a claim with all digests mended.

Every claim that is changed becomes false: a bound above the best plan, a figure or a split that is not the plan's, a form that
the space has and the certificate does not, prices that prove less. What stays true, such as a lower bound, is not made.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dovetail.certificate.file import Certificate, plan_digest, read
from dovetail.platform.accelerator import Architecture

Random = np.random.Generator


def falsified(plan: str, certificate: str, seed: int) -> tuple[str, str, str]:
    """What was changed, and both texts."""
    rng = np.random.default_rng([seed, 31])
    if seed % 2:
        return _bytes_changed(plan, certificate, rng)
    document, claims = json.loads(plan), read(certificate)
    name, change = CLAIMS[int(rng.integers(len(CLAIMS)))]
    document, claims = change(document, claims, rng)
    if name != "plan of another certificate":
        claims = _with(claims, plan=plan_digest(document))
    return name, json.dumps(document), claims.text()


def _bytes_changed(plan: str, certificate: str, rng: Random) -> tuple[str, str, str]:
    """One to four characters of one file replaced, doubled or left out."""
    texts = [plan, certificate]
    which = int(rng.integers(2))
    text = texts[which]
    while text == texts[which] or (which == 0 and _same(text, plan)):
        at, stop = int(rng.integers(len(text))), int(rng.integers(1, 5))
        piece = text[at:at + stop]
        other = ["", piece * 2, "".join(chr(int(c)) for c in rng.integers(32, 127, len(piece)))][int(rng.integers(3))]
        text = text[:at] + other + text[at + stop:]
    texts[which] = text
    return f"characters of the {('plan', 'certificate')[which]}", texts[0], texts[1]


def _same(text: str, plan: str) -> bool:
    """Whether a plan says the same in other characters: a space more between numbers changes nothing."""
    try:
        return bool(json.loads(text) == json.loads(plan))
    except ValueError:
        return False


def _with(claims: Certificate, **changes: Any) -> Certificate:
    fields = ("command", "graph", "plan", "goal", "bound", "forms", "accelerators")
    return Certificate(**{name: changes.get(name, getattr(claims, name)) for name in fields})


Changed = tuple[dict[str, Any], Certificate]


def _higher_bound(document: dict[str, Any], claims: Certificate, rng: Random) -> Changed:
    bound = document["objective"] * (1 + 10.0 ** -int(rng.integers(1, 6)))
    return {**document, "lower_bound": bound}, _with(claims, bound=bound)


def _higher_plan_bound(document: dict[str, Any], claims: Certificate, rng: Random) -> Changed:
    return {**document, "lower_bound": claims.bound * (1 + 10.0 ** -int(rng.integers(1, 6)))}, claims


def _figure(document: dict[str, Any], claims: Certificate, rng: Random) -> Changed:
    name = ("objective", "latency_s", "energy_j", "interval_s")[int(rng.integers(4))]
    return {**document, name: document[name] * (1 + float(rng.choice([-1, 1])) * 10.0 ** -int(rng.integers(1, 8)))}, claims


def _split(document: dict[str, Any], claims: Certificate, rng: Random) -> Changed:
    """A node somewhere else, with figures as they were."""
    nodes, devices = list(document["assignment"]), [d["name"] for d in document["platform"]["device"]]
    name = nodes[int(rng.integers(len(nodes)))]
    before = document["assignment"][name]
    others = [{"axis": None, "shares": [{"device": d, "start": 0, "stop": 1}], "reducer": None} for d in devices]
    others = [o for o in others if o != before]
    return {**document, "assignment": {**document["assignment"], name: others[int(rng.integers(len(others)))]}}, claims


def _cut(document: dict[str, Any], claims: Certificate, rng: Random) -> Changed:
    """A cut where there is none, past the end of its axis, or with a gap."""
    nodes, devices = list(document["assignment"]), [d["name"] for d in document["platform"]["device"]]
    name, stop = nodes[int(rng.integers(len(nodes)))], int(rng.integers(2, 99999))
    shares = [{"device": devices[0], "start": 0, "stop": stop}, {"device": devices[-1], "start": stop + 1, "stop": 2 * stop}]
    split = {"axis": ("output_channels", "rows", "groups")[int(rng.integers(3))], "shares": shares, "reducer": None}
    return {**document, "assignment": {**document["assignment"], name: split}}, claims


def _dropped_form(document: dict[str, Any], claims: Certificate, rng: Random) -> Changed:
    if len(claims.forms) < 2:
        return _higher_bound(document, claims, rng)
    left_out = int(rng.integers(len(claims.forms)))
    return document, _with(claims, forms=tuple(f for i, f in enumerate(claims.forms) if i != left_out))


def _price(document: dict[str, Any], claims: Certificate, rng: Random) -> Changed:
    """A price on something that nothing limits."""
    if not claims.forms:
        return document, _with(claims, accelerators=tuple(replace(c, cuts=tuple(
            replace(own, prices={**own.prices, "nothing": float(rng.random())}) for own in c.cuts)) for c in claims.accelerators))
    line, pace, prices = claims.forms[0]
    return document, _with(claims, forms=((line, pace, {**prices, "nothing": float(rng.random())}), *claims.forms[1:]))


def _resource(document: dict[str, Any], claims: Certificate, rng: Random) -> Changed:
    held = document["resources"]
    if not held:
        return _figure(document, claims, rng)
    device = sorted(held)[int(rng.integers(len(held)))]
    name = sorted(held[device])[int(rng.integers(len(held[device])))]
    entry = {**held[device][name], "used": held[device][name]["used"] + 10.0 ** int(rng.integers(0, 5))}
    return {**document, "resources": {**held, device: {**held[device], name: entry}}}, claims


def _board(document: dict[str, Any], claims: Certificate, rng: Random) -> Changed:
    """A host that idles on less power, or a link that is faster."""
    board = json.loads(json.dumps(document["platform"]))
    part = (board["device"] if rng.random() < 0.5 else board["link"])[0]
    name = next(k for k, v in part.items() if isinstance(v, dict) and isinstance(v.get("value"), float) and v["value"] > 0)
    part[name]["value"] *= 0.9
    return {**document, "platform": board}, claims


def _network(document: dict[str, Any], claims: Certificate, rng: Random) -> Changed:
    return document, _with(claims, graph=f"{int(rng.integers(1 << 62)):064x}")


def _other_plan(document: dict[str, Any], claims: Certificate, rng: Random) -> Changed:
    return {**document, "notes": [*document["notes"], f"note {int(rng.integers(1 << 30))}"]}, claims


def _space(document: dict[str, Any], claims: Certificate, rng: Random) -> Changed:
    return {**document, "space": [f"{words} and {int(rng.integers(2, 99))} more" for words in document["space"]] or ["more"]}, \
        _with(claims, forms=(*claims.forms, (0, 77, {})))


def _goal(document: dict[str, Any], claims: Certificate, rng: Random) -> Changed:
    goals = [g for g in ("latency", "energy", "throughput") if g != claims.goal]
    return document, _with(claims, goal=goals[int(rng.integers(len(goals)))])


def _accelerators(document: dict[str, Any], claims: Certificate, rng: Random) -> Changed:
    """Accelerators that take longer than they must, cuts of which nothing is said, nodes or kinds that are not stated."""
    if not claims.accelerators:
        return _higher_bound(document, claims, rng)
    first, *others = claims.accelerators
    bound, clock_hz = document["objective"] * (1 + 10.0 ** -int(rng.integers(1, 5))), first.least / claims.bound
    changes: tuple[dict[str, Any], ...] = (
        {"least": bound * clock_hz}, {"cuts": first.cuts[1:]}, {"cuts": first.cuts[:-1]}, {"start": first.start + 1},
        {"stop": first.stop - 1}, {"kinds": first.kinds[1:] or (Architecture.SEML,)},
        {"cuts": tuple(replace(own, prices={}) for own in first.cuts)},
        {"cuts": tuple(replace(own, box={0: (1, 2)}) for own in first.cuts)}, {"least": first.least / 2, "prices": {}})
    which = int(rng.integers(len(changes)))
    found = _with(claims, accelerators=(replace(first, **changes[which]), *others))
    return ({**document, "lower_bound": bound}, _with(found, bound=bound)) if which == 0 else (document, found)


def _design(document: dict[str, Any], claims: Certificate, rng: Random) -> Changed:
    """An accelerator that is faster than its engines, or reads more of its memory in a clock than there is."""
    board = json.loads(json.dumps(document["platform"]))
    designs = [d["accelerator"] for d in board.get("device", ()) if "accelerator" in d] if isinstance(board, dict) else []
    if not designs or not claims.accelerators:
        return _higher_bound(document, claims, rng)
    if designs[0]["arrays"] and rng.random() < 0.5:
        designs[0]["arrays"] |= {"port_bytes": 64, "bandwidth_bytes": 64}
    else:
        designs[0]["pace_clocks"] = 1 + designs[0]["pace_clocks"] // 2
    return {**document, "platform": board}, claims


CLAIMS: tuple[tuple[str, Callable[[dict[str, Any], Certificate, Random], Changed]], ...] = (
    ("bound", _higher_bound), ("bound of the plan", _higher_plan_bound), ("figure", _figure), ("split", _split), ("cut", _cut),
    ("form left out", _dropped_form), ("price", _price), ("resource", _resource), ("board", _board), ("network", _network),
    ("plan of another certificate", _other_plan), ("space", _space), ("goal", _goal),
    ("accelerators", _accelerators), ("accelerator", _design))
