"""Hardware that cannot fit is refused from the estimate; what may just fit is only noted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dovetail.cost.budget import check_budget, estimate, usable
from dovetail.errors import InfeasibleError
from dovetail.explore.area_layers import AreaLayer, area_graph
from dovetail.measure.layers import MeasuredLayer
from dovetail.platform.device import ModelSet
from dovetail.platform.fitted import dhm_model
from dovetail.platform.load import load_platform, platform_from_dict, platform_to_dict

GRAPH = area_graph(AreaLayer(MeasuredLayer("conv", 3, 16, 8, 3), True, "normal", 8, False, 3))
FPGA = load_platform("ecp5-85").device("fpga")


def test_what_fits_is_passed_without_a_word() -> None:
    assert check_budget([GRAPH], FPGA, "part") == ()


def test_the_resource_and_its_excess_are_named() -> None:
    needs = estimate([GRAPH], FPGA)
    small = replace(FPGA, resources={**FPGA.resources, "lut4": 1000.0})
    with pytest.raises(InfeasibleError) as caught:
        check_budget([GRAPH], small, "part")
    assert caught.value.exit_code == 1
    assert f"part: does not fit fpga (LFE5U-85F-6BG381C) by estimate: lut4 {needs['lut4']:,.0f} of 1,000, " \
           f"{needs['lut4'] - 1000:,.0f} too many" in str(caught.value)
    assert "--fold auto" in str(caught.value)


def test_what_the_models_error_may_excuse_is_a_note() -> None:
    needs, error = estimate([GRAPH], FPGA)["lut4"], dhm_model(FPGA.model).error
    close = replace(FPGA, resources={"lut4": needs * (1 - error / 2)})
    (note,) = check_budget([GRAPH], close, "part")
    assert note.startswith(f"part: may not fit fpga, by estimate lut4 {needs:,.0f} of {needs * (1 - error / 2):,.0f}")
    with pytest.raises(InfeasibleError):
        check_budget([GRAPH, GRAPH], close, "both parts")


def test_logic_and_registers_leave_free_what_the_model_errs_by() -> None:
    fpga = load_platform("zcu102").device("fpga")
    assert usable(fpga) == pytest.approx({"lut": 0.9 * 274_080, "register": 0.9 * 548_160, "bram36": 912, "dsp": 2520})
    whole = usable(fpga, accelerator=True)
    assert whole["lut"] == pytest.approx((1 - dhm_model(fpga.model).accelerator_error) * 274_080)
    assert usable(FPGA, accelerator=True) == usable(FPGA)  # no accelerator was counted on this family


def test_a_fill_that_is_asked_for_holds_for_every_resource() -> None:
    board = load_platform("zcu102").with_fill(0.5)
    assert usable(board.device("fpga")) == {r: 0.5 * v for r, v in board.device("fpga").resources.items()}
    assert usable(board.device("fpga"), accelerator=True) == usable(board.device("fpga"))
    assert platform_from_dict(platform_to_dict(board)).device("fpga").parameters["fill"] == 0.5


def test_the_papers_models_are_believed_as_they_are() -> None:
    fpga = load_platform("tx2-c10gx").with_models(ModelSet.MEASURED).device("fpga")
    assert usable(fpga) == fpga.resources
