"""Fitting: known laws are recovered, folds are honest, censored rows stay out, files are what the loader reads."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.cost.fitting.kriging import Smoothing, fit_table
from dovetail.cost.fitting.link import fit_link, fit_transfer, link_text
from dovetail.cost.fitting.nonnegative import fit_dictionary
from dovetail.cost.fitting.quantity import fit_quantity
from dovetail.cost.fitting.recipes import CONCAVE, HARDWARE, RECIPES, FitRecipe
from dovetail.cost.fitting.rows import divisions, fold_numbers, read_rows
from dovetail.cost.fitting.scatter import errors_of
from dovetail.cost.fitting.softmax import fit_softmax
from dovetail.cost.fitting.text import quantity_text
from dovetail.cost.predict import SquareLayers, evaluation_values, physics_values, posynomial_values, predict, seen_in_fit
from dovetail.errors import UsageError
from dovetail.platform.link_model import parse_link_model
from dovetail.platform.quantity import Form, QuantityModel, parse_quantity, quantity_model, quantity_names, ratio_interval
from dovetail.platform.schema import TomlTable

AREA = ({}, {"channels": 1.0, "kernel": 2.0, "filters": 1.0})


def grid(noise: float = 0.0, keep: float = 1.0) -> dict[str, np.ndarray]:
    """A device that is 100 + 3 c k^2 n, but a third dearer from 8 filters on, as libraries and tools have it."""
    levels = ([6, 8, 10, 12], [1, 2, 4, 8], [2, 3], [2, 4, 8, 12])
    side, c, k, n = (v.ravel().astype(float) for v in np.meshgrid(*levels, indexing="ij"))
    random = np.random.default_rng(0)
    value = (100 + 3 * c * k**2 * n) * np.where(n >= 8, 4 / 3, 1.0) * np.exp(random.normal(0, noise, len(n)))
    kept = random.random(len(n)) < keep
    return {name: v[kept] for name, v in {"hw": side, "c": c, "k": k, "n": n, "value": value}.items()}


def recipe(**changes: object) -> FitRecipe:
    entries = {"device": "c10gx", "quantity": "toy", "unit": "ALM", "description": "a toy", "columns": ("value",),
               "value": lambda columns: columns["value"], "physics": AREA, "variables": HARDWARE, "terms": (1, 2),
               "smoothing": Smoothing((2.0, 2.0, 2.0, 2.0), 3.0, 0.05, 1e-5)}
    return FitRecipe(**{**entries, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def toy() -> QuantityModel:
    return fit_quantity(recipe(), grid(0.01, 0.8))


def test_non_negative_terms_are_recovered_from_clean_rows_with_a_few_stalled_ones() -> None:
    features = np.random.default_rng(0).uniform(0.1, 1, (400, 4))
    target = features @ [1e-3, 0.0, 5e-2, 2.0]
    target[::40] *= 5
    assert fit_dictionary(features, target) == pytest.approx([1e-3, 0.0, 5e-2, 2.0], rel=0.05, abs=2e-3)


def test_a_posynomial_with_real_exponents_is_recovered() -> None:
    logs = np.random.default_rng(0).uniform(0, 5, (300, 2))
    truth = np.exp(1 + 0.3 * logs[:, 0]) + np.exp(-4 + 1.7 * logs[:, 0] + 0.9 * logs[:, 1])
    found = fit_softmax(logs, truth, 2)
    assert found.at(logs) == pytest.approx(truth, rel=1e-3)
    assert sorted(found.exponents[:, 0]) == pytest.approx([0.3, 1.7], abs=0.02)


def test_a_table_carries_a_jump_along_one_axis_to_points_that_were_not_measured() -> None:
    index = np.array([(i, j) for i in range(6) for j in range(6) if (i, j) != (4, 4)], dtype=np.int64)
    levels = (np.arange(1.0, 7.0), np.arange(1.0, 7.0))
    deviation = np.where(index[:, 0] >= 4, 0.5, 0.0)
    smoothing = Smoothing((1.0, 1.0), 3.0, 0.1, 1e-4)
    found = fit_table(index, deviation, np.ones(len(index)), levels, smoothing, np.array([[4, 4], [2, 2]]))
    assert found == pytest.approx([0.5, 0.0], abs=0.05)


def test_a_table_is_the_same_however_its_covariance_is_solved() -> None:
    random = np.random.default_rng(0)
    levels = (np.array([1.0, 2.0, 5.0]), np.array([1.0, 3.0, 4.0, 9.0]), np.array([1.0, 2.0]), np.array([2.0, 8.0, 9.0]))
    grid_points = np.indices([len(v) for v in levels]).reshape(4, -1).T
    index = grid_points[random.permutation(len(grid_points))[:50]]
    deviation, weights = random.normal(size=50), random.uniform(1, 9, 50)
    smoothing = Smoothing((0.5, 1.0, 2.0, 1.0), 4.0, 0.3, 0.02, 0.05, rounds=1)
    found = fit_table(index, deviation, weights, levels, smoothing, grid_points)
    product = np.full((len(grid_points), 50), smoothing.spread)
    for axis, (values, length) in enumerate(zip(levels, smoothing.lengths, strict=True)):
        apart = np.abs(np.log(values)[grid_points[:, axis], None] - np.log(values)[None, index[:, axis]])
        product *= (1 + 4 * np.exp(-apart / length)) / 5
    own = product[np.ravel_multi_index(tuple(index.T), tuple(len(v) for v in levels))]
    middle = np.median(deviation)
    expected = middle + product @ np.linalg.solve(own + np.diag(0.02 + 0.05 / weights), deviation - middle)
    assert found == pytest.approx(expected, abs=1e-5)


def test_a_stalled_repeat_does_not_move_the_table() -> None:
    index = np.array([(i, j) for i in range(5) for j in range(5)], dtype=np.int64)
    levels = (np.arange(1.0, 6.0), np.arange(1.0, 6.0))
    deviation, smoothing = np.linspace(-0.2, 0.3, 25), Smoothing((1.0, 1.0), 3.0, 0.1, 1e-4)
    once = fit_table(index, deviation, np.ones(25), levels, smoothing, index)
    repeated = np.concatenate([index, index, index[:1]])
    readings = np.concatenate([deviation, deviation, [2.0]])
    assert fit_table(repeated, readings, np.ones(51), levels, smoothing, index) == pytest.approx(once, abs=0.01)


def test_repeats_of_a_configuration_share_their_fold() -> None:
    points = np.repeat(np.arange(40.0)[:, None], 3, axis=0)
    fold = fold_numbers(points).reshape(40, 3)
    assert (fold == fold[:, :1]).all()
    assert sorted(np.unique(fold)) == [0, 1, 2, 3, 4]
    for seen, kept in divisions(points):
        assert not set(points[seen, 0]) & set(points[kept, 0])


def test_the_table_sees_what_the_formula_cannot_and_the_errors_say_so(toy: QuantityModel) -> None:
    assert toy.errors[Form.EVALUATION].mean < 0.02
    assert toy.errors[Form.POSYNOMIAL].mean < 0.12
    clean = grid()
    layers = SquareLayers(clean["hw"], clean["c"], clean["k"], clean["n"])
    assert evaluation_values(toy, layers) == pytest.approx(clean["value"], rel=0.06)
    assert seen_in_fit(toy, layers).sum() == toy.rows < len(clean["n"])


def test_nine_of_ten_rows_lie_in_the_interval(toy: QuantityModel) -> None:
    rows = grid(0.01)
    found = predict(toy, SquareLayers(rows["hw"], rows["c"], rows["k"], rows["n"]))
    assert 0.8 < np.mean((found.low <= rows["value"]) & (rows["value"] <= found.high)) <= 1.0
    assert found.inside.all()


@pytest.mark.parametrize("name", quantity_names("measured"))
@pytest.mark.parametrize("form", list(Form))
def test_the_intervals_of_other_folds_cover_nine_of_ten_left_out_rows(name: str, form: Form) -> None:
    coverage = quantity_model("measured", name).errors[form].coverage
    assert coverage is not None
    assert 0.85 < coverage < 0.95


def test_coverage_is_counted_on_rows_the_interval_was_not_drawn_from() -> None:
    random = np.random.default_rng(0)
    predicted = random.uniform(1.0, 100.0, 2000)
    even = errors_of(predicted, predicted * np.exp(random.normal(0, 0.1, 2000)), np.arange(2000) % 5)
    assert even.coverage == pytest.approx(0.9, abs=0.02)
    shifted = predicted * np.where(np.arange(2000) % 5 == 0, 2.0, 1.0) * np.exp(random.normal(0, 0.01, 2000))
    found = errors_of(predicted, shifted, np.arange(2000) % 5)
    assert found.coverage < 0.8  # the fold that is twice as slow lies outside what the others show


def test_intervals_follow_the_size_of_the_prediction() -> None:
    random = np.random.default_rng(0)
    predicted = np.sort(random.uniform(1.0, 100.0, 2000))
    noise = np.where(predicted < 50, 0.2, 0.02)
    model = errors_of(predicted, predicted * np.exp(random.normal(0, 1, 2000) * noise))
    low, high = ratio_interval(model, np.array([10.0, 90.0]))
    assert high[0] - low[0] > 5 * (high[1] - low[1])


def test_outside_the_box_physics_gives_the_shape_and_the_interval_widens(toy: QuantityModel) -> None:
    edge, far = (SquareLayers(*(np.array([v]) for v in p)) for p in ((12.0, 8.0, 3.0, 12.0), (48.0, 8.0, 3.0, 48.0)))
    inside, outside = predict(toy, edge), predict(toy, far)
    assert inside.inside.all()
    assert not outside.inside.any()
    assert outside.value / inside.value == pytest.approx(physics_values(toy, far) / physics_values(toy, edge))
    assert outside.high / outside.value > inside.high / inside.value


def test_a_kernel_size_that_was_not_measured_takes_its_neighbour_scaled_by_physics(toy: QuantityModel) -> None:
    sizes = ((10.0, 3.0), (12.0, 5.0))
    three, five = (SquareLayers(np.array([side]), np.array([4.0]), np.array([k]), np.array([4.0])) for side, k in sizes)
    ratio = physics_values(toy, five) / physics_values(toy, three)
    assert posynomial_values(toy, five) == pytest.approx(posynomial_values(toy, three) * ratio, rel=0.02)


def test_rows_that_do_not_tell_the_quantity_are_left_out() -> None:
    rows = grid()
    rows["value"] = np.minimum(rows["value"], 900.0)
    model = fit_quantity(recipe(usable=lambda value: value < 900.0, table_over=Form.EVALUATION, physics=AREA), rows)
    assert model.rows == int((rows["value"] < 900.0).sum()) < len(rows["value"])
    largest = SquareLayers(np.array([12.0]), np.array([8.0]), np.array([3.0]), np.array([12.0]))
    assert evaluation_values(model, largest)[0] > 1500  # what was asked for, not where the part ended


def test_what_is_written_is_what_is_read(toy: QuantityModel) -> None:
    again = parse_quantity(TomlTable("toy.toml", tomllib.loads(quantity_text(toy))))
    rows = grid()
    layers = SquareLayers(rows["hw"], rows["c"], rows["k"], rows["n"])
    for values in (evaluation_values, posynomial_values):
        assert values(again, layers) == pytest.approx(values(toy, layers), rel=1e-3)
    assert (again.seen == toy.seen).all()
    assert again.box == toy.box


def test_fitting_twice_gives_the_same_file() -> None:
    first, second = (quantity_text(fit_quantity(recipe(terms=(2,)), grid(0.02, 0.7))) for _ in range(2))
    assert first == second


def test_small_transfers_take_the_floor_and_large_ones_the_line() -> None:
    sizes = 1024 * 2.0 ** np.arange(1, 11)
    seconds = np.maximum(14e-6, 7e-6 + sizes * 6.5e-10)
    found = fit_transfer(sizes, seconds)
    assert (found.floor_s, found.start_s, found.s_per_byte) == pytest.approx((14e-6, 7e-6, 6.5e-10), rel=1e-3)
    model = fit_link({"kib": sizes / 1024, "latency_a_ms": seconds * 1e3, "latency_b_ms": seconds * 2e3})
    assert model.errors[Form.EVALUATION].mean < 0.05 < model.errors[Form.POSYNOMIAL].mean
    again = parse_link_model(TomlTable("link.toml", tomllib.loads(link_text(model))))
    assert again.directions["b"].seconds(sizes, Form.EVALUATION) == pytest.approx(2 * seconds, rel=1e-3)


@pytest.mark.parametrize(("text", "message"), [
    ("hw,c\n1,2\n", r"rows\.csv: no column k, found hw, c; needed are hw, c, k$"),
    ("hw,c,k\n1,2,3\n4,five,6\n", r"rows\.csv: row 3, column c: 'five' is not a number; give one, without unit$"),
    ("hw,c,k\n1,2,3\n4,-5,6\n", r"rows\.csv: row 3, column c: -5 is not possible; a finite number from 0 is needed$"),
    ("hw,c,k\n1,2\n", r"rows\.csv: row 2, column k: None is not a number"),
    ("hw,c,k\n", r"rows\.csv: no rows below the headings"),
])
def test_wrong_rows_are_named_by_row_and_column(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(UsageError, match=message):
        read_rows(tmp_path / "rows.csv", ("hw", "c", "k"))


def test_every_recipe_has_its_shipped_file_with_errors_below_what_was_promised() -> None:
    assert set(quantity_names("measured")) == {r.name for r in RECIPES}
    limits = {"tx2-gpu-latency": (0.10, 0.055), "tx2-cpu-latency": (0.045, 0.04), "tx2-gpu-power": (0.035, 0.035),
              "tx2-cpu-power": (0.02, 0.02), "c10gx-alm": (0.024, 0.02), "c10gx-alut": (0.02, 0.02), "c10gx-lab": (0.02, 0.02),
              "c10gx-m20k": (0.03, 0.03), "c10gx-power": (0.005, 0.005), "c10gx-fmax": (0.06, 0.06)}
    for name, (posynomial, evaluation) in limits.items():
        errors = quantity_model("measured", name).errors
        assert errors[Form.EVALUATION].mean <= evaluation
        assert name in CONCAVE or errors[Form.POSYNOMIAL].mean <= posynomial


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_predictions_are_positive_finite_and_within_the_bound_of_physics_everywhere(data: st.DataObject) -> None:
    model = quantity_model("measured", data.draw(st.sampled_from(quantity_names("measured"))))
    numbers = st.floats(1, 2000)
    side, kernel = data.draw(numbers), data.draw(st.floats(1, 15))
    layers = SquareLayers(*(np.array([v]) for v in (side + kernel, data.draw(numbers), kernel, data.draw(numbers))))
    found = predict(model, layers)
    assert 0 < found.low[0] <= found.value[0] * (1 + 1e-9)
    assert found.value[0] <= found.high[0] * (1 + 1e-9) < np.inf
    assert np.exp(-model.bound) * 0.999 <= found.value[0] / physics_values(model, layers)[0] <= np.exp(model.bound) * 1.001
