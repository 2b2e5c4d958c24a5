"""The area campaign: a store that is continued, any executor, and a model that is fitted to one half and judged by the other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli import main
from dovetail.errors import UsageError
from dovetail.fpga.assemble import build_design
from dovetail.measure.area_campaign import TOP, AreaResults, CountedArea, count_layer, family_of, result_key, run_campaign
from dovetail.measure.area_layers import AreaLayer, area_graph, designed_area_layers
from dovetail.measure.area_model import LOGIC, REGISTERS, engines, fit_model, judge, judgement_json, judgement_table, predicted
from dovetail.measure.layers import MeasuredLayer
from dovetail.platform.fitted import dhm_model

TINY = AreaLayer(MeasuredLayer("add", 1, 4, inputs=2), True, "normal", 4, False, 1)
TINY_POOL = AreaLayer(MeasuredLayer("max_pool", 1, 8, 0, 2, 2), False, "normal", 4, False, 2)


def silent(stage: str, done: int, total: int) -> None:
    """Nobody watches."""


class Recorder(Executor):
    """An executor of somebody else's that computes at once and remembers what came back."""

    def __init__(self) -> None:
        self.results: list[tuple[str, CountedArea | None]] = []

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.results.append(work(*arguments, **named))
        future.set_result(self.results[-1])
        return future


@pytest.mark.yosys
def test_a_second_run_counts_nothing_and_a_changed_layer_alone_is_counted(tmp_path: Path) -> None:
    store, first, second, third = AreaResults(tmp_path / "store"), Recorder(), Recorder(), Recorder()
    counted = run_campaign([TINY, TINY_POOL], ["ecp5"], store, silent, first)
    again = run_campaign([TINY, TINY_POOL], ["ecp5"], store, silent, second)
    assert [found is not None for _, found in first.results] == [True, True]
    assert [found is not None for _, found in second.results] == [False, False]
    assert again == counted
    assert counted["ecp5"][TINY].resources["lut4"] > 0
    run_campaign([TINY, replace(TINY_POOL, bits=5)], ["ecp5"], store, silent, third)
    assert [found is not None for _, found in third.results] == [False, True]


@pytest.mark.yosys
def test_an_interrupted_run_keeps_what_it_counted(tmp_path: Path) -> None:
    def interrupt(stage: str, done: int, total: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    store = AreaResults(tmp_path)
    with pytest.raises(KeyboardInterrupt), ThreadPoolExecutor(1) as pool:
        run_campaign([TINY, TINY_POOL], ["ecp5"], store, interrupt, pool)
    assert len(store.keys("ecp5")) == 1


@pytest.mark.yosys
def test_the_process_pool_of_its_own_finds_what_another_executor_stored(tmp_path: Path) -> None:
    store = AreaResults(tmp_path)
    key, found = count_layer(TINY, "ecp5", frozenset())
    assert found is not None
    store.write(found)
    assert run_campaign([TINY], ["ecp5"], store, silent)["ecp5"][TINY] == store.read("ecp5", key)


def test_a_key_is_of_hardware_tool_and_family() -> None:
    files = build_design(area_graph(TINY), TOP).files
    key = result_key(files, "Yosys 0.70", "ecp5")
    changed = {name: text.replace("input", "input ", 1) for name, text in files.items()}
    others = {result_key(changed, "Yosys 0.70", "ecp5"), result_key(files, "Yosys 0.71", "ecp5"),
              result_key(files, "Yosys 0.70", "xcu")}
    assert len(others | {key}) == 4


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    (tmp_path / "ecp5").mkdir()
    (tmp_path / "ecp5" / "abc.json").write_text("{}")
    with pytest.raises(UsageError, match=r"abc\.json: not a result of a campaign \('schema'\); remove the file"):
        AreaResults(tmp_path).read("ecp5", "abc")


def test_a_longer_campaign_contains_a_shorter_one_and_both_halves_have_every_operator() -> None:
    layers = designed_area_layers(64)
    assert designed_area_layers(20) == layers[:20]
    assert len({str(layer) for layer in layers}) == 64
    for calibrates in (True, False):
        part = [layer for layer in layers if layer.calibrates is calibrates]
        assert len(part) >= 24
        assert {layer.layer.op for layer in part} >= {"conv", "gemm", "add", "max_pool", "average_pool", "global_average"}


@pytest.mark.slow("fits the area model")
def test_a_fit_finds_the_coefficients_that_counts_were_made_with_and_is_judged_by_unseen_layers() -> None:
    model, layers = dhm_model("dhm-ecp5"), designed_area_layers(64)
    true = {name: 0.5 + index / 10 for index, name in enumerate((*LOGIC, *REGISTERS))}
    made = predicted(engines(dict.fromkeys(layers)), model, **true)  # type: ignore[arg-type]
    counted = {layer: CountedArea("", str(layer), "ecp5", "Yosys 0.70", {r: float(v[i]) for r, v in made.items()}, 1.0)
               for i, layer in enumerate(layers)}
    assert fit_model("ecp5", counted) == pytest.approx(true, rel=1e-4)
    perfect, shipped = judge("ecp5", counted, true), judge("ecp5", counted)
    assert perfect.validation["lut4"].largest < 1e-9
    document = judgement_json(shipped)
    assert document["median"] == max(e.median for e in shipped.validation.values()) > 0.01
    assert f"{shipped.validation['lut4'].median:.1%}" in judgement_table([shipped])


@pytest.mark.parametrize(("arguments", "message"), [
    (["--layers", "0"], "--layers 0: must be at least 1"),
    (["--family", "stratix"], "--family stratix: unknown; known are ecp5, xcu, xcup"),
    (["-o", "models"], "-o models: nothing to write; add --fit"),
])
def test_a_bad_argument_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["campaign", "area", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_families_have_the_names_people_use() -> None:
    assert (family_of("UltraScale"), family_of("ultrascale+"), family_of("ecp5")) == ("xcu", "xcup", "ecp5")
