"""Non-negative least squares: as good as SciPy's, on any matrix, and never negative."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from dovetail.cost.fitting.nonnegative import least_squares


@settings(max_examples=150, deadline=None)
@given(rows=st.integers(1, 60), columns=st.integers(1, 11), seed=st.integers(0, 2**31), twins=st.booleans(), noise=st.booleans())
def test_the_residual_is_the_smallest_there_is(rows: int, columns: int, seed: int, twins: bool, noise: bool) -> None:
    random = np.random.default_rng(seed)
    features = random.random((rows, columns)) * 10.0 ** random.uniform(-5, 5, columns)
    if twins and columns > 1:
        features[:, 1] = 2 * features[:, 0]
    target = features @ np.maximum(random.normal(size=columns), 0) + (random.normal(size=rows) if noise else 0.0)
    found = least_squares(features, target)
    scale = np.linalg.norm(features, axis=0)
    other = nnls(features / scale, target, maxiter=1000)[0] / scale
    assert (found >= 0).all()
    residuals = [float(np.linalg.norm(features @ x - target)) for x in (found, other)]
    assert residuals[0] <= residuals[1] + 1e-8 * float(np.linalg.norm(target))


def test_a_column_of_zeros_has_no_coefficient() -> None:
    features = np.array([[1.0, 0.0], [2.0, 0.0]])
    assert least_squares(features, np.array([3.0, 6.0])).tolist() == [3.0, 0.0]


def test_a_target_that_nothing_explains_leaves_everything_at_zero() -> None:
    assert least_squares(np.ones((4, 3)), -np.ones(4)).tolist() == [0.0, 0.0, 0.0]
