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


def _gw2a(source_hz: float, wanted_hz: float) -> ClockGenerator | None:
    """rPLL (Gowin DS102, UG286): phase detector from 3 MHz, oscillator 500 to 1,250 MHz, output 3.90625 to 625 MHz."""
    found = [(abs(hz - wanted_hz), abs(hz * out - 875e6), into, back, out, hz)
             for into, back in product(range(1, 65), range(1, 65))
             if source_hz / into >= 3e6 and abs((hz := source_hz * back / into) - wanted_hz) < wanted_hz / 20
             and 3.90625e6 <= hz <= 625e6
             for out in (2, 4, 8, *range(16, 129, 16)) if 500e6 <= hz * out <= 1250e6]
    if not found:
        return None
    *_, into, back, out, hz = min(found)
    unused = [*((pin, 6) for pin in ("FBDSEL", "IDSEL", "ODSEL")), *((pin, 4) for pin in ("PSDA", "DUTYDA", "FDLY"))]
    return ClockGenerator(hz, "rPLL", f"""\
wire locked;
rPLL #(
  .FCLKIN("{source_hz / 1e6:g}"), .DEVICE("GW2A-18"), .IDIV_SEL({into - 1}), .FBDIV_SEL({back - 1}), .ODIV_SEL({out}),
  .DYN_IDIV_SEL("false"), .DYN_FBDIV_SEL("false"), .DYN_ODIV_SEL("false"), .DYN_SDIV_SEL(2), .DYN_DA_EN("false"),
  .PSDA_SEL("0000"), .DUTYDA_SEL("1000"), .CLKFB_SEL("internal")
) pll (
  .CLKIN(clock), .CLKFB(1'b0), .RESET(1'b0), .RESET_P(1'b0), {", ".join(f".{pin}({bits}'d0)" for pin, bits in unused)},
  .CLKOUT(clk), .LOCK(locked)
);
""")


GENERATORS: Mapping[str, Callable[[float, float], ClockGenerator | None]] = {"ecp5": _ecp5, "gw2a": _gw2a}
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
