"""Certificates are found here: prices for every form of a plan's space, and the highest bound that they prove.

The searches of `partition` give the bound to be proven; `certificate` proves it again from the model and the board alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np

from dovetail.certificate.accelerators import AcceleratorClaim
from dovetail.certificate.bound import Prices, SearchedForm
from dovetail.certificate.check import ROUNDED
from dovetail.certificate.columns import SLACK, DividedNode
from dovetail.certificate.file import GOALS, Certificate, Form, graph_digest, plan_digest
from dovetail.certificate.held import held_form, suffices
from dovetail.certify_accelerators import claim_of, stated, target_of
from dovetail.errors import InternalError, UnsupportedError
from dovetail.forms import Space
from dovetail.hardware.arrays.layers import counts_bits
from dovetail.hardware.shares import Floats
from dovetail.ir import Graph
from dovetail.partition.linear_programs import DEAREST, largest_minimum, largest_mixture
from dovetail.partition.options import Options
from dovetail.partition.plan import Assignment, Goal, Mode, Plan, Status
from dovetail.partition.plan_json import plan_to_json
from dovetail.platform.device import Kind, Platform
from dovetail.progress import Progress, silent

ROUNDS = 60
"""Prices that are tried, at the most. Chosen: they have converged long before."""
SURE = 1e-8
"""By which part a bound is lowered so that rounding cannot fail it. Chosen: ten times the slack of limits."""
SETTLED = 1e-6
"""Progress of the bound, relative, at which prices have converged. Chosen, not measured."""


def certify(graph: Graph, platform: Platform, options: Options, plan: Plan, space: Space, command: str,
            progress: Progress = silent) -> tuple[Plan, str]:
    """A plan with the bound that is proven, and the proof as the text of a certificate; `command` asks for the same plan.

    Raises:
        UnsupportedError: no certificate speaks of such plans.
    """
    if options.budget != "shared":
        raise UnsupportedError("certificate: budgets by layer have none; leave out --budget")
    if plan.goal.value not in GOALS or plan.mode is not Mode.CONCURRENT:
        raise UnsupportedError(f"certificate: plans for {plan.goal} in {plan.mode} mode have none; possible are "
                               f"{', '.join(GOALS)} in {Mode.CONCURRENT} mode")
    base = platform.with_fill(options.fill).with_link_logic()
    for target in dict.fromkeys((reachable(plan, space), plan.lower_bound)):
        bound, around = certified_accelerators(graph, base, space, options.pinned(graph), plan, target * (1 - SURE), progress)
        if not space.paces and not any(claim.proves for claim, _ in around):
            raise UnsupportedError(f"certificate: accelerators alone have none for {plan.goal}; leave out --architecture")
        bound, forms = certified(graph, base, space.paces, options.pinned(graph), plan, bound, progress)
        if bound >= plan.lower_bound * (1 - ROUNDED):
            break
    claims = tuple(claim if own is None else replace(claim, prices=named(_scaled(own, bound))) for claim, own in around)
    if bound < plan.lower_bound * (1 - ROUNDED):
        plan = replace(plan, lower_bound=bound, status=Status.FEASIBLE)
    elif any(claim.proves for claim in claims) and bound > plan.lower_bound * (1 + ROUNDED):
        plan = replace(plan, lower_bound=bound)
    document = plan_to_json(plan, space.forms[space.best].platform)
    return plan, Certificate(command, graph_digest(graph), plan_digest(document), plan.goal.value, bound, forms, claims).text()


def reachable(plan: Plan, space: Space) -> float:
    """What may be proven of a plan's space: for latency prices may prove more of accelerators than their search."""
    if plan.goal is not Goal.LATENCY or plan.beyond > 0 or plan.given_up > 0:
        return plan.lower_bound
    others = zip(space.forms, space.plans, strict=False)
    return max(plan.lower_bound, min([plan.objective, *(f.bound(p) for f, p in others if f.judged is None and p is not None)]))


def divided(assignment: Assignment) -> dict[str, DividedNode]:
    """Splits as the checker has them."""
    return {name: DividedNode(s.axis, tuple(s.pieces), s.reducer) for name, s in assignment.items()}


def certified(graph: Graph, platform: Platform, paces: Sequence[int | None], pins: Assignment, plan: Plan, bound: float,
              progress: Progress = silent) -> tuple[float, tuple[Form, ...]]:
    """The highest bound up to a given one that prices prove over forms of an FPGA, and these prices.

    Raises:
        InternalError: the plan's bound is above a plan that it covers.
    """
    found: list[Prices] = []
    for index, pace in enumerate(paces):
        progress("certificate", index, len(paces))
        board = platform if pace is None else platform.with_pace(pace)
        found.append(proven(SearchedForm(graph, board, plan.goal.value, bound, divided(pins)), bound))
        bound = found[-1].bound
    progress("certificate", len(paces), len(paces))
    # What proves a bound proves lower ones.
    return bound, tuple((0, pace, named(_scaled(own, bound))) for pace, own in zip(paces, found, strict=True))


Around = tuple[AcceleratorClaim, Prices | None]
"""What is proven of accelerators, and prices of the division of all other nodes where that alone does not suffice."""


def certified_accelerators(graph: Graph, platform: Platform, space: Space, pins: Assignment, plan: Plan, bound: float,
                           progress: Progress = silent) -> tuple[float, list[Around]]:
    """The highest bound up to a given one that prices prove over the accelerators of a space, and what they prove.

    Where nothing can be proven of some of them, the bound to be proven is the plan's objective: that nothing else is better.
    """
    forms, goal = [form for form in space.forms if form.judged is not None], plan.goal.value
    if forms and counts_bits(graph):
        return plan.objective * (1 - SURE), []
    nothing: tuple[float, list[Around]] = plan.objective * (1 - SURE), [(stated(graph, form), None) for form in forms]
    found = list[Around]()
    for form in forms:
        (device,) = platform.of_kind(Kind.FPGA)
        assert device.clock_hz is not None
        claim = claim_of(graph, platform, form, target_of(device, goal, bound), goal, progress)
        if claim is None:
            return nothing
        if suffices(claim, device, goal, bound):
            found.append((claim, None))
            continue
        own = proven(held_form(graph, platform, claim, goal, bound, divided(pins)), bound)
        alone = claim.least / device.clock_hz * (1 - SURE) if goal == "throughput" else 0.0
        bound = max(own.bound, alone)
        found.append((claim, own if own.bound >= alone else None))
    return bound, found


def named(prices: Prices) -> dict[str, float]:
    """Prices by what is limited."""
    return dict(zip(prices.form.limits, prices.price.tolist(), strict=True))


def proven(form: SearchedForm, bound: float) -> Prices:
    """Prices that prove a bound on a form, or the highest one below it that they do."""
    prices, most = priced(form, bound)
    found = prices.proven()
    if found is False and not form.held:
        raise InternalError(f"certificate: a plan of {form.platform.name} is below {bound:.9g}, which is called a bound of all")
    if not found:  # the tree alone proves `most`; halfway there may be few enough partial plans
        lower = most * (1 - SURE)
        halfway = _scaled(prices, (lower + bound) / 2)
        prices = halfway if halfway.proven() else _scaled(prices, lower)
    return prices


def _scaled(prices: Prices, bound: float) -> Prices:
    """The same prices for a lower bound: those of busy seconds are prices of parts of it."""
    form = prices.form
    timed = np.array([bound / prices.bound if name in form.timed else 1.0 for name in form.limits])
    return Prices(replace(form, ceiling_s=bound) if form.timed else form, prices.price * timed, bound)


def priced(form: SearchedForm, bound: float) -> tuple[Prices, float]:
    """Prices on what is limited with which the tree proves most, and how much that is; the search ends once that is `bound`."""
    limits = len(form.limits)
    busy = limits - len(form.timed)
    best, most = Prices(form, np.zeros(limits), bound), -inf
    price = best.price if form.goal != "throughput" else np.r_[np.zeros(busy), np.full(limits - busy, bound / (limits - busy))]
    costs, slopes = list[float](), list[Floats]()
    for _ in range(ROUNDS):
        tried = Prices(form, price, bound)
        cost, amounts = tried.cheapest()
        value = cost + float(price @ amounts) - float(price[:busy].sum()) * (1 + float(SLACK))
        if value > most:
            best, most = tried, value
        costs.append(cost)
        slopes.append(amounts)
        if most >= bound or not limits:
            break
        planes = np.array(slopes)
        if form.goal == "throughput":
            reach, weights, more = largest_mixture(planes[:, busy:] * bound, planes[:, :busy] - 1.0)
            price = np.r_[more, weights * bound]
        else:
            reach, price = largest_minimum(np.array(costs), planes - 1.0, DEAREST * bound)
        if reach <= most * (1 + SETTLED):
            break
    return best, most
