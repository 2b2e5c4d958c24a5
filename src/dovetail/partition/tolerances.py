"""How near numbers must be to count as equal: one value for each reason that they are not."""

from __future__ import annotations

from sys import float_info

ROUNDOFF = 2 * float_info.epsilon
"""Relative rounding of one addition or product in a chain of them; source: IEEE 754 doubles, with a margin."""
ROUNDING = 1e-12
"""Relative slack where sums of the same numbers are taken in another order.

Chosen: some thousand roundings of a double, far below any difference between costs that a model could justify.
"""
SETTLED = 1e-10
"""Relative progress below which an iteration has converged. Chosen: a hundred times the rounding of its sums."""
TOLERANCE = 1e-9
"""Relative slack of limits, and the gap at which a plan counts as proven best.

Chosen: above what prices on several limits make of rounding, and below one unit of any budget, which are some millions.
"""
PROGRAM_ERROR = 1e-7
"""Relative error of a linear program's value; source: the primal and dual feasibility tolerances of HiGHS, by default."""
WHOLE_ERROR = 1e-6
"""How far from a whole number an integer of a program may be; source: HiGHS's `mip_feasibility_tolerance`, by default."""
ROUGH = 1e-6
"""Relative progress at which prices have converged whose bounds only choose candidates. Chosen: as `WHOLE_ERROR`."""
CLOSE = 1e-3
"""Relative gap at which a plan is good enough to begin another search with, or a point of a front is proven.

Chosen: a tenth of a percent, below the error of any cost model here.
"""
