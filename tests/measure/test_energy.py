"""Energy counters: each is found only where its files are, and adds up what they say."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from dovetail.measure import energy
from dovetail.measure.energy import cpu_counter, jetson_counter, rapl_counter


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_nothing_is_counted_where_nothing_is(tmp_path: Path) -> None:
    assert rapl_counter(tmp_path) is None
    assert jetson_counter("GPU", tmp_path) is None
    assert cpu_counter(tmp_path) is None


def test_packages_are_summed_and_a_counter_that_runs_over_is_carried_on(tmp_path: Path) -> None:
    counters = []
    for i in range(2):
        package = tmp_path / f"sys/class/powercap/intel-rapl:{i}"
        counters.append(put(package / "energy_uj", "900000"))
        put(package / "max_energy_range_uj", "1000000")
    put(tmp_path / "sys/class/powercap/intel-rapl:0:0/energy_uj", "5")  # a part of package 0, counted there
    counter = cpu_counter(tmp_path)
    assert counter is not None
    assert counter.name == "RAPL of 2 packages"
    assert counter.joules() == 0.0
    counters[0].write_text("950000")
    counters[1].write_text("100000")
    assert counter.joules() == pytest.approx(0.05 + 0.2)


def test_a_counter_that_may_not_be_read_is_not_used(tmp_path: Path) -> None:
    put(tmp_path / "sys/class/powercap/intel-rapl:0/energy_uj", "")
    assert rapl_counter(tmp_path) is None


@pytest.mark.parametrize("layout", ["hwmon", "iio"])
def test_a_jetson_rail_is_found_by_its_label_and_summed_over_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                  layout: str) -> None:
    chip = tmp_path / "sys/bus/i2c/drivers"
    if layout == "hwmon":
        folder = chip / "ina3221/1-0040/hwmon/hwmon3"
        put(folder / "in1_label", "VDD_CPU\n")
        put(folder / "in2_label", "VDD_GPU_SOC\n")
        put(folder / "in2_input", "5000")
        put(folder / "curr2_input", "800")
    else:
        folder = chip / "ina3221x/0-0040/iio:device0"
        put(folder / "rail_name_0", "VDD_SYS_GPU\n")
        put(folder / "in_power0_input", "4000")
    clock = SimpleNamespace(perf_counter=lambda: clock.now, now=10.0)
    monkeypatch.setattr(energy, "time", clock)
    counter = jetson_counter("GPU", tmp_path)
    assert counter is not None
    with counter:
        before, clock.now = counter.joules(), 12.5
        assert counter.joules() - before == pytest.approx(4.0 * 2.5)
