"""Boards: what ships loads and is sourced; what is wrong is named exactly."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from dovetail.errors import PlatformError
from dovetail.platform.describe import describe
from dovetail.platform.device import Kind, Platform
from dovetail.platform.fitted import dhm_model, model_names, posynomial_model
from dovetail.platform.load import example_of, load_platform, platform_from_dict, platform_names, platform_to_dict

GOOD: dict[str, Any] = {
    "name": "toy", "description": "one processor, one fabric", "host": "cpu",
    "device": [
        {"name": "cpu", "kind": "cpu", "description": "a core", "model": "roofline",
         "idle_power_w": {"value": 1.0, "source": "assumed"}, "busy_power_w": {"value": 2.0, "source": "assumed"},
         "parameters": {
             "peak_flop_per_s": {"value": 1e9, "source": "data sheet"}, "efficiency": {"value": 0.5, "source": "assumed"},
             "bandwidth_bytes_per_s": {"value": 1e9, "source": "data sheet"}, "launch_s": {"value": 1e-5, "source": "assumed"},
             "interval_fraction": {"value": 0.5, "source": "assumed"}}},
        {"name": "fpga", "kind": "fpga", "description": "a fabric", "model": "dhm-ecp5", "family": "ecp5",
         "clock_hz": {"value": 1e8, "source": "assumed"}, "idle_power_w": {"value": 0.1, "source": "assumed"},
         "busy_power_w": {"value": 0.2, "source": "assumed"},
         "resources": {key: {"value": 100, "source": "data sheet"} for key in ("lut4", "register", "bram", "dsp")}},
    ],
    "link": [{"name": "bus", "ends": ["cpu", "fpga"], "bandwidth_bytes_per_s": {"value": 1e8, "source": "assumed"},
              "latency_s": {"value": 1e-6, "source": "assumed"}, "energy_j_per_byte": {"value": 0.0, "source": "assumed"}}],
}


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """An edit of the good board: `device.1.clock_hz` set to a value, or removed where the value is None."""

    def edit(board: dict[str, Any]) -> None:
        *parents, key = path.split(".")
        at: Any = board
        for parent in parents:
            at = at[int(parent)] if parent.isdigit() else at[parent]
        if value is None:
            del at[key]
        else:
            at[int(key) if key.isdigit() else key] = value

    return edit


BAD = [
    (change("colour", "red"), "platform toy: unknown key colour; allowed are name, description, host, device, link, switch"),
    (change("description", None), "platform toy: key description is missing; needed are name, description, host, device"),
    (change("name", 7), "platform 7: key name is 7; a non-empty text is needed"),
    (change("host", "cpuu"), "platform toy: key host is 'cpuu' (did you mean cpu?); allowed are cpu, fpga"),
    (change("device.0.kind", "gpuu"),
     "platform toy, device cpu: key kind is 'gpuu' (did you mean gpu?); allowed are cpu, gpu, fpga"),
    (change("device.1.clok_hz", {"value": 1, "source": "x"}),
     "platform toy, device fpga: unknown key clok_hz (did you mean clock_hz?); allowed are name, kind, description, model, "
     "idle_power_w, busy_power_w, clock_hz, dispatch_s, family, part, resources, parameters, models, accelerator, kernels, top"),
    (change("device.1.clock_hz", {"value": 100, "source": "in MHz by mistake"}),
     "platform toy, device fpga, clock_hz: key value is 100; allowed is 10000 to 1e+11 Hz"),
    (change("device.1.clock_hz", {"value": "fast", "source": "x"}),
     "platform toy, device fpga, clock_hz: key value is 'fast'; a number from 10000 to 1e+11 Hz is needed"),
    (change("device.1.clock_hz", {"value": True, "source": "x"}),
     "platform toy, device fpga, clock_hz: key value is True; a number from 10000 to 1e+11 Hz is needed"),
    (change("device.1.clock_hz", 1e8),
     "platform toy, device fpga: key clock_hz is 100000000.0; write it with its origin as "
     "{ value = <10000 to 1e+11 Hz>, source = \"...\" }, source \"assumed\" where nobody says"),
    (change("device.1.clock_hz", {"value": 1e8}),
     "platform toy, device fpga, clock_hz: key source is missing; needed are value, source"),
    (change("device.1.clock_hz", {"value": 1e8, "source": " "}),
     "platform toy, device fpga, clock_hz: key source is ' '; a non-empty text is needed"),
    (change("device.1.clock_hz", None), "platform toy, device fpga: an fpga needs the keys family and clock_hz"),
    (change("device.1.resources.bram", None),
     "platform toy, device fpga, resources: key bram is missing; needed are lut4, register, bram, dsp"),
    (change("device.1.family", "ecp6"),
     "platform toy, device fpga: key family is 'ecp6' (did you mean ecp5?); allowed are cyclone10gx, ecp5, gw2a, xcu, xcup"),
    (change("device.0.parameters.efficiency", {"value": 50, "source": "percent by mistake"}),
     "platform toy, device cpu, parameters, efficiency: key value is 50; allowed is 0.0001 to 1 (fraction of peak)"),
    (change("device.0.model", "tx2-cpy"),
     "platform toy, device cpu: key model is 'tx2-cpy' (did you mean tx2-cpu?); "
     "allowed are roofline, calibrated, dhm-cyclone10gx, dhm-ecp5, dhm-gw2a, dhm-xcu, dhm-xcup, tx2-cpu, tx2-gpu"),
    (change("device.0.busy_power_w", {"value": 0.5, "source": "assumed"}),
     "platform toy, device cpu: key busy_power_w is 0.5 W, below idle_power_w 1 W; busy must be at least idle"),
    (change("device.1.name", "cpu"), "platform toy: two devices named cpu; names must differ"),
    (change("device.1.name", "a/b"),
     "platform toy, device a/b: key name is 'a/b'; letters, digits, - and _ are possible, a letter first"),
    (change("device.1.model", "dhm-cyclone10gx"),
     "platform toy, device fpga: key model is 'dhm-cyclone10gx'; an fpga of family ecp5 takes dhm-ecp5"),
    (change("device.1.model", "roofline"),
     "platform toy, device fpga: key model is 'roofline'; an fpga of family ecp5 takes dhm-ecp5"),
    (change("device.0.model", "dhm-ecp5"),
     "platform toy, device cpu: key model is 'dhm-ecp5', which is hardware; "
     "a cpu takes one of roofline, calibrated, tx2-cpu, tx2-gpu"),
    (change("device.0.family", "ecp5"), "platform toy, device cpu: key family is 'ecp5'; only an fpga has one, this is a cpu"),
    (change("device.1.parameters", {"memory_masters": {"value": 3, "source": "assumed"}}),
     "platform toy, device fpga: key parameters.memory_masters is 3; 1, 2, 4 are possible"),
    (change("device.1.parameters", {"memory_master_bytes": {"value": 12, "source": "assumed"}}),
     "platform toy, device fpga: key parameters.memory_master_bytes is 12; 4, 8, 16, 32, 64, 128 are possible"),
    (change("device.0.resources", {"lut4": {"value": 1, "source": "assumed"}}),
     "platform toy, device cpu, resources: unknown key lut4; no key is possible here"),
    (change("device", []), "platform toy: no [[device]]; at least one is needed"),
    (change("device", {}), "platform toy: key device is {}; a list of tables, [[device]], is needed"),
    (change("link.0.ends", ["cpu", "fgpa"]),
     "platform toy, link bus: key ends names 'fgpa' (did you mean fpga?); devices are cpu, fpga"),
    (change("link.0.ends", ["cpu"]),
     "platform toy, link bus: key ends is ['cpu']; two different device names are needed, from cpu, fpga"),
    (change("link.0.full_duplex", "yes"), "platform toy, link bus: key full_duplex is 'yes'; true or false is needed"),
    (change("link.0.latency_s", {"value": 12, "source": "microseconds by mistake"}),
     "platform toy, link bus, latency_s: key value is 12; allowed is 0 to 1 s"),
    (change("link", []), "platform toy: no link path from cpu to fpga; add a [[link]] to the board file"),
]


@pytest.mark.parametrize(("edit", "message"), BAD, ids=[message[:60] for _, message in BAD])
def test_a_bad_board_is_refused_with_the_whole_story(edit: Callable[[dict[str, Any]], None], message: str) -> None:
    board = deepcopy(GOOD)
    edit(board)
    with pytest.raises(PlatformError) as caught:
        platform_from_dict(board)
    assert str(caught.value) == message


def test_the_good_board_is_good() -> None:
    assert platform_from_dict(GOOD).device("fpga").resources["lut4"] == 100.0


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(PlatformError) as caught:
        load_platform("tx2-c10g")
    assert str(caught.value) == ("platform tx2-c10g: unknown (did you mean tx2-c10gx?); "
                                 f"known are {', '.join(platform_names())}, or give the path of a board file (.toml)")


def test_a_missing_file_is_named() -> None:
    with pytest.raises(PlatformError, match=r"^platform nowhere/board\.toml: no such file; give a board file or one of arty-"):
        load_platform("nowhere/board.toml")


def test_a_file_that_is_not_toml_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "board.toml"
    file.write_text("name = \n", encoding="utf-8")
    with pytest.raises(PlatformError, match=r"board\.toml: not readable as TOML: Invalid value \(at line 1, column 8\)"):
        load_platform(str(file))


def test_a_board_of_ones_own_loads_from_its_path(tmp_path: Path) -> None:
    shipped = Path(__file__).parents[2] / "src/dovetail/platform/boards/ecp5-85.toml"
    file = tmp_path / "mine.toml"
    file.write_text(shipped.read_text(encoding="utf-8").replace('name = "ecp5-85"', 'name = "mine"'), encoding="utf-8")
    assert load_platform(str(file)).name == "mine"


@pytest.fixture(params=[example_of(name) for name in platform_names()])
def board(request: pytest.FixtureRequest) -> Platform:
    return load_platform(request.param)


def test_every_number_of_a_shipped_board_has_a_source(board: Platform) -> None:
    for device in board.devices:
        keys = ["idle_power_w", "busy_power_w", *(k for k in ("clock_hz", "dispatch_s") if getattr(device, k) is not None),
                *(f"resources.{k}" for k in device.resources), *(f"parameters.{k}" for k in device.parameters)]
        assert sorted(device.sources) == sorted(keys)
        assert all(device.sources.values())
    for link in board.links:
        assert sorted(link.sources) == ["bandwidth_bytes_per_s", "energy_j_per_byte", "latency_s",
                                        *sorted(f"logic.{k}" for k in link.logic), *sorted(f"switch.{k}" for k in link.switch)]


def test_a_board_survives_json(board: Platform) -> None:
    assert platform_from_dict(json.loads(json.dumps(platform_to_dict(board)))) == board


def test_the_description_shows_every_number_with_its_source(board: Platform) -> None:
    text = describe(board)
    for owner in (*board.devices, *board.links):
        for key, source in owner.sources.items():
            line = next(x for x in text.splitlines() if x.strip().startswith(key.split(".")[-1]) and x.endswith(source))
            assert ("* " in line) == source.startswith("assumed")


def test_the_papers_board_is_as_published() -> None:
    board = load_platform("tx2-c10gx")
    fpga = board.device("fpga")
    assert dict(fpga.resources) == {"alm": 80330, "m20k": 587, "dsp": 192, "register": 321320}
    assert [link.name for link in board.route("gpu", "fpga")] == ["memory", "pcie"]
    assert {d.name: d.kind for d in board.devices} == {"cpu": Kind.CPU, "gpu": Kind.GPU, "fpga": Kind.FPGA}
    assert 0.64e-3 < board.route("cpu", "fpga")[0].transfer_s(1 << 20) < 0.70e-3


def test_this_machine_has_no_fpga_and_says_assumed_everywhere() -> None:
    board = load_platform("this-machine")
    assert [d.kind for d in board.devices] == [Kind.CPU]
    assert all(source.startswith("assumed") for source in board.devices[0].sources.values())


@pytest.mark.parametrize("name", model_names())
def test_every_shipped_model_states_source_and_error(name: str) -> None:
    if name.startswith("dhm-"):
        model = dhm_model(name)
        assert model.source
        assert 0 < model.error < 1
        assert all(model.sources.values())
    else:
        fitted = posynomial_model(name)
        assert fitted.rows > 1000
        assert 0 < fitted.latency_error[0] < fitted.latency_error[1]
        assert {t.part for t in fitted.terms} == {"loop", "layer"}


def test_two_links_of_one_name_are_refused_because_transfers_name_their_link() -> None:
    board = platform_to_dict(load_platform("tx2-c10gx"))
    board["link"][1]["name"] = "memory"
    with pytest.raises(PlatformError, match=r"^platform tx2-c10gx: two links named memory; names must differ$"):
        platform_from_dict(board)


def test_a_name_with_a_line_break_is_refused_in_one_line() -> None:
    board = platform_to_dict(load_platform("tx2-c10gx"))
    board["device"][1]["name"] = "g\npu"
    with pytest.raises(PlatformError, match=r"^platform tx2-c10gx, device 1: key name is 'g\\npu'; letters, digits"):
        platform_from_dict(board)
