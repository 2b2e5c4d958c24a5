"""Energy counters of the machine, each used only where it is: NVIDIA's NVML, Jetson's INA3221 rails, Intel's and AMD's RAPL."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from types import TracebackType

from dovetail.words import counted

SAMPLE_S = 0.02
"""Between two readings of a power rail."""


class EnergyCounter:
    """Joules that only grow. `name` says what is counted."""

    name: str

    def joules(self) -> float:
        """Energy since some moment before."""
        raise AssertionError(f"{type(self).__name__} states no counter")


@dataclass
class NvmlCounter(EnergyCounter):
    """The energy counter of one NVIDIA GPU (Volta and later), through the driver's own library."""

    index: int = 0

    def __post_init__(self) -> None:
        self.name = f"NVML energy counter of GPU {self.index}"
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        self._device = ctypes.c_void_p()
        found = self._library.nvmlInit_v2() or self._library.nvmlDeviceGetHandleByIndex_v2(self.index, ctypes.byref(self._device))
        if found:
            raise OSError(f"NVML answers {found}")
        self.joules()

    def joules(self) -> float:
        total = ctypes.c_ulonglong()
        found = self._library.nvmlDeviceGetTotalEnergyConsumption(self._device, ctypes.byref(total))
        if found:
            raise OSError(f"NVML answers {found}")
        return total.value * 1e-3


@dataclass
class RaplCounter(EnergyCounter):
    """Package energy of Intel and AMD processors; the counters run over at `max_energy_range_uj` and are carried on."""

    packages: tuple[Path, ...]

    def __post_init__(self) -> None:
        self.name = f"RAPL of {counted(len(self.packages), 'package')}"
        self._last = [self._read(p) for p in self.packages]
        self._total_uj = 0

    def joules(self) -> float:
        for i, package in enumerate(self.packages):
            now = self._read(package)
            step = now - self._last[i]
            if step < 0:
                step += int((package / "max_energy_range_uj").read_text())
            self._total_uj += step
            self._last[i] = now
        return self._total_uj * 1e-6

    @staticmethod
    def _read(package: Path) -> int:
        return int((package / "energy_uj").read_text())


class RailCounter(EnergyCounter):
    """Power of INA3221 rails, read again and again in the background and summed up over time."""

    def __init__(self, rail: str, read_w: Callable[[], float]) -> None:
        self.name = f"INA3221 rail {rail}"
        self._read_w = read_w
        self._total_j = 0.0
        self._at, self._power_w = time.perf_counter(), read_w()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._lock = threading.Lock()
        self._thread.start()

    def __enter__(self) -> RailCounter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            self._advance()

    def _advance(self) -> None:
        with self._lock:
            now, power_w = time.perf_counter(), self._read_w()
            self._total_j += (now - self._at) * (power_w + self._power_w) / 2
            self._at, self._power_w = now, power_w

    def joules(self) -> float:
        self._advance()
        return self._total_j


def gpu_counter() -> EnergyCounter | None:
    """NVML where there is a driver, else the GPU rail of a Jetson, else nothing."""
    try:
        return NvmlCounter()
    except (OSError, AttributeError):
        return jetson_counter("GPU")


def cpu_counter(root: Path = Path("/")) -> EnergyCounter | None:
    """RAPL where it may be read, else the CPU rail of a Jetson, else nothing."""
    return rapl_counter(root) or jetson_counter("CPU", root)


def rapl_counter(root: Path = Path("/")) -> RaplCounter | None:
    """All processor packages whose counters may be read."""
    packages = tuple(sorted((root / "sys/class/powercap").glob("intel-rapl:?")))
    try:
        return RaplCounter(packages) if packages else None
    except (OSError, ValueError):
        return None


def jetson_counter(unit: str, root: Path = Path("/")) -> RailCounter | None:
    """The rail of a Jetson whose label names the unit: hwmon (volts times amperes), or the older iio files."""
    for label in sorted(root.glob("sys/bus/i2c/drivers/ina3221*/*/hwmon/hwmon*/in?_label")):
        if unit in label.read_text():
            number = label.name[2]
            volts, amperes = label.with_name(f"in{number}_input"), label.with_name(f"curr{number}_input")
            return RailCounter(label.read_text().strip(), partial(_watts, (volts, amperes), 1e-6))
    for label in sorted(root.glob("sys/bus/i2c/drivers/ina3221x/*/iio:device*/rail_name_?")):
        if unit in label.read_text():
            power = label.with_name(f"in_power{label.name[-1]}_input")
            return RailCounter(label.read_text().strip(), partial(_watts, (power,), 1e-3))
    return None


def _watts(factors: tuple[Path, ...], unit: float) -> float:
    """The product of the numbers in some files, in watts: milliwatts, or millivolts and milliamperes."""
    return prod(int(factor.read_text()) for factor in factors) * unit
