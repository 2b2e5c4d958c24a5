"""Clock generators of FPGA families: the divisors that give a frequency, and the Verilog of the instance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

from dovetail.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class ClockGenerator:
    """An instance whose output is `hz`; in simulation a module of the same name stands for the primitive."""

    hz: float
    primitive: str
    verilog: str


def _ecp5(source_hz: float, wanted_hz: float) -> ClockGenerator | None:
    """EHXPLLL (FPGA-TN-02200): phase detector from 3.125 MHz, oscillator 400 to 800 MHz, output up to 400 MHz."""
    found = [(abs(hz - wanted_hz), abs(hz * out - 600e6), into, back, out, hz)
             for into, back in product(range(1, 129), range(1, 129))
             if source_hz / into >= 3.125e6 and abs((hz := source_hz * back / into) - wanted_hz) < wanted_hz / 20 and hz <= 400e6
             for out in range(1, 129) if 400e6 <= hz * out <= 800e6]
    if not found:
        return None
    *_, into, back, out, hz = min(found)
    return ClockGenerator(hz, "EHXPLLL", f"""\
wire locked;
EHXPLLL #(
  .CLKI_DIV({into}), .CLKFB_DIV({back}), .CLKOP_DIV({out}), .CLKOP_CPHASE({out // 2}), .FEEDBK_PATH("CLKOP")
) pll (
  .CLKI(clock), .CLKFB(clk), .RST(1'b0), .STDBY(1'b0), .PHASESEL0(1'b0), .PHASESEL1(1'b0), .PHASEDIR(1'b0), .PHASESTEP(1'b0),
  .PHASELOADREG(1'b0), .PLLWAKESYNC(1'b0), .ENCLKOP(1'b0), .CLKOP(clk), .LOCK(locked)
);
""")


GENERATORS: Mapping[str, Callable[[float, float], ClockGenerator | None]] = {"ecp5": _ecp5}
"""By family; each gives the frequency nearest to what is wanted, None where there is none within 5 %."""


def clock_generator(family: str, source_hz: float, wanted_hz: float) -> ClockGenerator:
    """The generator of `wanted_hz`, or nearly that, from a board's clock; its output is wire `clk`, its input pin `clock`."""
    if family not in GENERATORS:
        raise UnsupportedError(f"top for family {family}: no clock generator is known; possible are {', '.join(GENERATORS)}")
    found = GENERATORS[family](source_hz, wanted_hz)
    if found is None:
        raise UnsupportedError(f"clock of {wanted_hz / 1e6:g} MHz from {source_hz / 1e6:g} MHz: no divisors of {family} come "
                               "within 5 %; choose another clock")
    return found
