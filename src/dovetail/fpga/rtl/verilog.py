"""Prints a hardware module as Verilog-2005 in which every operand has exactly the width its context needs.

All arithmetic is printed modulo 2**width on explicitly extended operands, so no tool has to guess an
extension and width lint stays silent; only ordered comparisons need `$signed`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dovetail.fpga.rtl import expressions as rtl
from dovetail.fpga.rtl.expressions import ONE, Expr, Signal, bit_width
from dovetail.fpga.rtl.modules import ConstantTable, Memory, Module, Register, Rom

COMPOUND = (rtl.Binary, rtl.Multiplication, rtl.Mux, rtl.Compare, rtl.Logic, rtl.AnyBit, rtl.Parity)
"""Expressions that are more than one word when they are printed."""


def literal(value: int, width: int) -> str:
    """A sized constant; negative ones as the negated magnitude, which has the same bits."""
    return f"{width}'d{value}" if value >= 0 else f"-{width}'d{-value}"


def span(width: int) -> str:
    """The range of a declaration, empty for one bit."""
    return "" if width == 1 else f"[{width - 1}:0] "


def select_bits(value: Signal, start: int, count: int) -> str:
    if count == value.width:
        return value.name
    return f"{value.name}[{start}]" if count == 1 else f"{value.name}[{start + count - 1}:{start}]"


def extend(value: Signal, start: int, count: int, signed: bool, width: int) -> str:
    """A slice of a signal, extended by its sign or by zeros, or cut, to `width` bits."""
    if width <= count:
        return select_bits(value, start, width)
    text = select_bits(value, start, count)
    if not signed:
        return f"{{{width - count}'d0, {text}}}"
    sign = select_bits(value, start + count - 1, 1)
    extra = width - count
    return f"{{{f'{{{extra}{{{sign}}}}}' if extra > 1 else sign}, {text}}}"


def fit(expr: Expr, width: int) -> str:
    """Text of an expression as exactly `width` bits, equal to its value modulo 2**width."""
    match expr:
        case rtl.Const():
            fits = -(1 << (width - 1)) <= expr.lo < 1 << width
            return literal(expr.lo if fits else expr.lo % (1 << width), width)
        case Signal():
            return extend(expr, 0, expr.width, expr.signed, width)
        case rtl.Bits():
            return extend(expr.value, expr.start, expr.count, expr.signed, width)
        case rtl.ShiftLeft():
            if width <= expr.amount:
                return literal(0, width)
            text = fit(expr.value, width - expr.amount)
            if isinstance(expr.value, Signal | rtl.Bits) and text.startswith("{"):
                text = text[1:-1]  # one concatenation instead of two
            return f"{{{text}, {expr.amount}'d0}}"
        case rtl.Binary():
            return f"{operand(expr.left, width)} {expr.operator} {operand(expr.right, width)}"
        case rtl.Multiplication():
            sides = (fit(expr.left, width), fit(expr.right, width))
            signed = expr.left.signed or expr.right.signed  # says no more than the extension does, but tools build less
            return " * ".join(f"$signed({s})" if signed else s for s in sides)
        case rtl.TableEntry():
            assert width == expr.width, "a table's entry must be named before it is extended"
            return f"{expr.table}({expr.index.name})"
        case rtl.Mux():
            return f"{operand(expr.condition, 1)} ? {operand(expr.then, width)} : {operand(expr.otherwise, width)}"
        case rtl.Pack():
            above = width - sum(bits for _, bits in expr.fields)
            assert above >= 0, "packed fields must be named before they are cut"
            texts = [literal(0, above)] * (above > 0) + [fit(value, bits) for value, bits in reversed(expr.fields)]
            return f"{{{', '.join(texts)}}}" if len(texts) > 1 else texts[0]
        case rtl.Compare() | rtl.Logic() | rtl.Not() | rtl.AnyBit() | rtl.Parity():
            return bit(expr) if width == 1 else f"{{{width - 1}'d0, {operand(expr, 1)}}}"
        case _:
            raise AssertionError(f"unknown expression {type(expr).__name__}")


def operand(expr: Expr, width: int) -> str:
    """An expression inside another one: in parentheses where it is compound."""
    text = fit(expr, width)
    return f"({text})" if isinstance(expr, COMPOUND) and not text.startswith("{") else text


def bit(expr: Expr) -> str:
    """Text of a one-bit expression."""
    match expr:
        case rtl.Compare():
            signed = expr.left.signed or expr.right.signed
            sides = (expr.left, expr.right)
            width = max(s.width + (signed and not s.signed) for s in sides)
            ordered = signed and expr.operator not in ("==", "!=")
            left, right = (f"$signed({fit(s, width)})" if ordered else operand(s, width) for s in sides)
            return f"{left} {expr.operator} {right}"
        case rtl.Logic():
            return f" {expr.operator} ".join(operand(t, 1) for t in expr.terms)
        case rtl.Not():
            return f"~{operand(expr.term, 1)}"
        case rtl.Parity():
            return f"^({expr.value.name} & {expr.value.width}'h{expr.mask:x})"
        case rtl.AnyBit():
            return f"|{operand(expr.value, expr.value.width)}"
        case _:
            return fit(expr, 1)


def note(value: Expr) -> str:
    """The range a signed or unusually bounded signal keeps, as a comment."""
    return f"  // {value.lo}..{value.hi}" if value.signed or (value.width > 1 and value.hi + 1 != 1 << value.width) else ""


def assignments(registers: Iterable[Register], indent: str) -> list[str]:
    return [f"{indent}{r.target.name} <= {fit(r.value, r.target.width)};" for r in registers]


def clocked(registers: list[Register]) -> list[str]:
    """One clocked block for free-running registers, one per enable, one for all that have a reset."""
    lines: list[str] = []
    groups: dict[Expr, list[Register]] = {}
    for register in registers:
        if register.reset is None:
            groups.setdefault(register.enable, []).append(register)
    for enable, members in groups.items():
        head = "always @(posedge clk) begin" if enable == ONE else f"always @(posedge clk) if ({bit(enable)}) begin"
        lines += [head, *assignments(members, "  "), "end"]
    kept = [r for r in registers if r.reset is not None]
    if kept:
        lines += ["always @(posedge clk)", "  if (rst) begin"]
        lines += [f"    {r.target.name} <= {literal(r.reset or 0, r.target.width)};" for r in kept]
        lines += ["  end else begin"]
        for register in kept:
            (text,) = assignments([register], "")
            lines.append(f"    {text}" if register.enable == ONE else f"    if ({bit(register.enable)}) {text}")
        lines += ["  end"]
    return lines


def memory(m: Memory) -> list[str]:
    style = "block" if m.block else "distributed"
    intel = "M20K" if m.block else "MLAB"
    address = f"{m.name}[{fit(m.write_address, m.write_address.width)}]"
    kept = "" if m.read_enable == ONE else f"if ({bit(m.read_enable)}) "
    # no_rw_check: nobody uses a word read while it is written, so no tool needs to build a bypass for it
    return [f'(* no_rw_check, ram_style = "{style}", ramstyle = "{intel}, no_rw_check" *)',
            f"reg {span(m.width)}{m.name} [0:{m.depth - 1}];",
            "always @(posedge clk) begin",
            f"  if ({bit(m.write_enable)}) {address} <= {fit(m.write_value, m.width)};",
            f"  {kept}{m.read_value.name} <= {m.name}[{fit(m.read_address, m.read_address.width)}];",
            "end"]


def image_name(module: Module, r: Rom) -> str:
    """File of a ROM's words."""
    return f"{module.name}_{r.name}.hex"


def rom(module: Module, r: Rom) -> list[str]:
    style = f'(* rom_style = "{"block" if r.block else "logic"}", romstyle = "{"M20K" if r.block else "logic"}" *) '
    if len(r.words) == 1:
        return [f"always @(posedge clk) {r.read_value.name} <= {r.width}'h{r.words[0]:x};"]
    return [f"{style}reg {span(r.width)}{r.name} [0:{len(r.words) - 1}];",
            f'initial $readmemh("{image_name(module, r)}", {r.name});',
            f"always @(posedge clk) {r.read_value.name} <= {r.name}[{fit(r.address, r.address.width)}];"]


def images(module: Module) -> dict[str, str]:
    """The memory images a module reads, by file name: words of ROMs, one hexadecimal number a line."""
    return {image_name(module, r): "".join(f"{word:0{-(-r.width // 4)}x}\n" for word in r.words)
            for r in module.roms if len(r.words) > 1}


NAME = re.compile(r"[A-Za-z_]\w*")
TABLE_WORD_BITS = 6
"""Bits of an index whose entries are words of 64 bits at most."""
TABLE_LINE_BITS = 3
"""Lower bits of an index whose entries stand on one line."""


def table(t: ConstantTable) -> list[str]:
    """A function of the index as a tree of choices, upper bits first; a simulator sees small ones as words (`_in_words`).

    Not as a case: tools make a memory of it, which costs more than these choices do, or fail at it (Yosys 0.23).
    """
    width = bit_width(t.lo, t.hi)
    text = choice(dict(t.entries), 0, t.index_bits - 1, width, "  ")
    assert text is not None
    tree = _function(t, width, text)
    return tree if t.index_bits > TABLE_WORD_BITS else ["`ifdef VERILATOR", *_in_words(t, width), "`else", *tree, "`endif"]


def _function(t: ConstantTable, width: int, text: str) -> list[str]:
    return [f"function {span(width)}{t.name} (input {span(t.index_bits)}code);", f"  {t.name} = {text};", "endfunction"]


def _in_words(t: ConstantTable, width: int) -> list[str]:
    """Every bit of the entries is the one that the index selects of a word: a shift, where a tree is a branch for every choice.

    Verilator makes 76 MB of C++ of AlexNet in codes over three boards, where trees become 286 MB.
    """
    known, size = dict(t.entries), 1 << t.index_bits
    words = [sum((known.get(code, 0) >> bit & 1) << code for code in range(size)) for bit in range(width)]
    picked = ", ".join(f"{t.name}_word_{bit}[code]" for bit in reversed(range(width)))
    return [*(f"localparam [{size - 1}:0] {t.name}_word_{bit} = {size}'h{word:x};" for bit, word in enumerate(words)),
            *_function(t, width, f"{{{picked}}}")]


def choice(entries: dict[int, int], start: int, bit: int, width: int, indent: str) -> str | None:
    """The entries of indices that begin as `start` does, by the bits from `bit` down; None where no index occurs."""
    if bit < 0:
        return literal(entries[start], width) if start in entries else None
    inner = indent + "  "
    then, otherwise = (choice(entries, first, bit - 1, width, inner) for first in (start | 1 << bit, start))
    if then is None or otherwise is None or then == otherwise:
        return otherwise if then is None else then
    if bit < TABLE_LINE_BITS:
        return f"(code[{bit}] ? {then} : {otherwise})"
    return f"(code[{bit}] ?\n{inner}{then} :\n{inner}{otherwise})"


def comment(text: str) -> str:
    """One comment line whatever a network's names contain; a tool's directive must not be its first word."""
    return "// " + "".join(letter if letter.isprintable() and letter != "\\" else "?" for letter in text)


def in_order(module: Module) -> list[tuple[Signal, str]]:
    """Wires with the text that drives them, each behind those that it reads: many tools refuse a name before its declaration."""
    waiting = {target.name: (target, fit(value, target.width)) for target, value in module.wires if value is not None}
    found: list[tuple[Signal, str]] = []
    for name in list(waiting):
        open_wires = [name]
        while open_wires:
            at = waiting.get(open_wires[-1])
            if at is None:
                open_wires.pop()
            elif needed := [n for n in NAME.findall(at[1]) if n in waiting and n not in open_wires]:
                open_wires += needed[:1]
            else:
                found.append(waiting.pop(open_wires.pop()))
    return found


def print_module(module: Module) -> str:
    """The module as Verilog text, its header lines as comments on top."""
    lines = [comment(line) for line in module.header]
    ports = ["input wire clk", "input wire rst"]
    ports += [f"input wire {span(s.width)}{s.name}" for s in module.inputs]
    ports += [f"output wire {span(s.width)}{s.name}" for s in module.outputs]
    lines += ["`default_nettype none", f"module {module.name} (", *(f"  {p}," for p in ports[:-1]), f"  {ports[-1]}", ");"]
    lines += ["/* verilator no_inline_module */"] * (module.shared and not module.behaviour)
    if module.behaviour:
        lines += ["`ifdef VERILATOR", *module.behaviour, "`else"]
    outputs = {s.name for s in module.outputs}
    registered = [r.target for r in module.registers]
    registered += [m.read_value for m in module.memories] + [r.read_value for r in module.roms]
    for t in module.tables:
        lines += table(t)
    lines += [f"reg {span(s.width)}{s.name};{note(s)}" for s in registered]
    lines += [f"wire {span(s.width)}{s.name};" for s, value in module.wires if value is None]
    for target, text in in_order(module):
        lines.append(f"assign {target.name} = {text};" if target.name in outputs
                     else f"wire {span(target.width)}{target.name} = {text};{note(target)}")
    lines += [f"assign {target.name} = {fit(value, target.width)};" for target, value in module.assigns]
    for m in module.memories:
        lines += memory(m)
    for r in module.roms:
        lines += rom(module, r)
    lines += clocked(module.registers)
    for instance in module.instances:
        reset = "rst" if instance.reset is None else instance.reset.name
        pins = [f"  .clk(clk), .rst({reset})", *(f"  .{port}({s.name})" for port, s in instance.connections)]
        lines += [f"{instance.module} {instance.name} (", *(f"{pin}," for pin in pins[:-1]), pins[-1], ");"]
    if module.simulation_only:
        lines += ["`ifdef VERILATOR", *module.simulation_only, "`endif"]
    return "\n".join([*lines, *(["`endif"] if module.behaviour else []), "endmodule", "`default_nettype wire", ""])
