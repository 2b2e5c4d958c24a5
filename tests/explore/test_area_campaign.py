"""The area campaign: a store that is continued, and a model that is fitted to one half and judged by the other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.cli import main
from dovetail.explore.area_campaign import TOP, CountedArea, area_job, family_of, run_campaign
from dovetail.explore.area_layers import AreaLayer, area_graph, designed_area_layers
from dovetail.explore.area_model import LOGIC, REGISTERS, engines, fit_model, judge, judgement_json, judgement_table, predicted
from dovetail.explore.crew import Ended
from dovetail.explore.job import CampaignJob, Outcome, perform
from dovetail.explore.store import ResultStore
from dovetail.fpga.assemble import build_design
from dovetail.measure.layers import MeasuredLayer
from dovetail.platform.fitted import dhm_model

TINY = AreaLayer(MeasuredLayer("add", 1, 4, inputs=2), True, "normal", 4, False, 1)
TINY_POOL = AreaLayer(MeasuredLayer("max_pool", 1, 8, 0, 2, 2), False, "normal", 4, False, 2)


def silent(stage: str, done: int, total: int) -> None:
    """Nobody watches."""


class HereCrew:
    """Computes in this process, one job at a time, and remembers which."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.waiting: list[CampaignJob] = []

    def room(self, memory_bytes: int) -> bool:
        return not self.waiting

    def begin(self, job: CampaignJob) -> None:
        self.waiting.append(job)

    def ended(self) -> list[Ended]:
        job = self.waiting.pop()
        self.ran.append(job.label)
        return [Ended(job, Outcome(*perform(job.work, job.arguments, {}, {})))]


@pytest.mark.yosys
def test_a_second_run_counts_nothing_and_a_changed_layer_alone_is_counted(tmp_path: Path) -> None:
    crew = HereCrew()
    with ResultStore(tmp_path / "store") as store:
        counted = run_campaign([TINY, TINY_POOL], ["ecp5"], store, crew, silent)
        assert crew.ran == [f"ecp5: {TINY}", f"ecp5: {TINY_POOL}"]
        assert run_campaign([TINY, TINY_POOL], ["ecp5"], store, crew, silent) == counted
        assert len(crew.ran) == 2
        changed = replace(TINY_POOL, bits=5)
        run_campaign([TINY, changed], ["ecp5"], store, crew, silent)
        assert crew.ran[2:] == [f"ecp5: {changed}"]
    assert counted["ecp5"][TINY].resources["lut4"] > 0


@pytest.mark.yosys
def test_an_interrupted_run_keeps_what_it_counted(tmp_path: Path) -> None:
    def interrupt(stage: str, done: int, total: int) -> None:
        if stage.startswith("ecp5") and done == 1:
            raise KeyboardInterrupt

    with ResultStore(tmp_path / "store") as store:
        with pytest.raises(KeyboardInterrupt):
            run_campaign([TINY, TINY_POOL], ["ecp5"], store, HereCrew(), interrupt)
        assert len(store) == 1


def test_a_key_is_of_hardware_tool_and_family() -> None:
    files = build_design(area_graph(TINY), TOP).files
    key = area_job(TINY, "ecp5", files, "Yosys 0.70").key
    changed = {name: text.replace("input", "input ", 1) for name, text in files.items()}
    others = {area_job(TINY, "ecp5", changed, "Yosys 0.70").key, area_job(TINY, "ecp5", files, "Yosys 0.71").key,
              area_job(TINY, "xcu", files, "Yosys 0.70").key}
    assert len(others | {key}) == 4


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
    counted = {layer: CountedArea(str(layer), "ecp5", "Yosys 0.70", {r: float(v[i]) for r, v in made.items()}, 1.0)
               for i, layer in enumerate(layers)}
    assert fit_model("ecp5", counted) == pytest.approx(true, rel=1e-4)
    perfect, shipped = judge("ecp5", counted, true), judge("ecp5", counted)
    assert perfect.validation["lut4"].largest < 1e-9
    document = judgement_json(shipped)
    assert document["median"] == max(e.median for e in shipped.validation.values()) > 0.01
    assert f"{shipped.validation['lut4'].median:.1%}" in judgement_table([shipped])


@pytest.mark.parametrize(("arguments", "message"), [
    (["--layers", "0"], "--layers 0: must be at least 1"),
    (["--family", "stratix"], "--family stratix: unknown; known are ecp5, gw2a, xcu, xcup"),
    (["-o", "models"], "-o models: nothing to write; add --fit"),
])
def test_a_bad_argument_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["campaign", "area", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_families_have_the_names_people_use() -> None:
    assert (family_of("UltraScale"), family_of("ultrascale+"), family_of("ecp5")) == ("xcu", "xcup", "ecp5")
