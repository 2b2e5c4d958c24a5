"""The command line: arguments in, exit code out. Every command is one call of the pipeline."""

from __future__ import annotations

import argparse
import re
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

from dovetail import __version__
from dovetail.cli import builds, devices, models, plans, reproduce, setup, training
from dovetail.cli.options import Commands
from dovetail.cli.output import abandon_output, flush_output, prepare_streams
from dovetail.errors import DovetailError, Interrupted
from dovetail.files import check_file
from dovetail.platform.schema import suggestion
from dovetail.processes import Stopped, stopped_by_signals

EXAMPLES = """`dovetail COMMAND --help` explains a command; every one answers scripts with `--json -`.

examples:
  dovetail inspect model.onnx                      what is in it, and what each kind of device can take
  dovetail plan model.onnx -p tx2-c10gx            who computes what, how long, why, and how good that is
  dovetail compile model.onnx -p tx2-c10gx --calibration images.npz -o build/model
  dovetail verify build/model                      every device against the reference, bit for bit
  dovetail synth build/model                       resources of the FPGA part
"""
GROUPS = {
    "start here": ("docs", "doctor", "zoo", "inspect"),
    "numbers": ("quantize", "evaluate", "bits", "train"),
    "plans": ("platforms", "plan", "studio", "pareto", "explore", "compare", "check"),
    "builds": ("compile", "verify", "run", "serve", "report"),
    "hardware": ("synth", "export", "bitstream", "flash", "selftest", "prove", "power"),
    "your own devices": ("new-board", "calibrate", "validate-models", "campaign"),
    "papers": ("reproduce",),
}
"""Commands as help lists them."""
ACTIONS = {
    "inspect": "models", "zoo": "catalogue", "quantize": "models", "evaluate": "builds", "platforms": "catalogue",
    "plan": "plans", "check": "plans", "pareto": "plans", "bits": "plans", "compile": "builds", "verify": "builds",
    "run": "builds", "synth": "builds", "export": "builds", "bitstream": "builds", "flash": "builds",
    "selftest": "builds", "prove": "proofs", "power": "builds",
    "report": "builds", "calibrate": "devices", "validate-models": "devices", "campaign": "devices", "reproduce": "reproduce",
    "train": "training", "serve": "serve", "docs": "setup", "doctor": "setup", "new-board": "setup",
    "compare": "plans", "studio": "studio", "explore": "explore",
}
"""The module of `cli/actions` that runs a command, imported when it is asked for: help and mistakes need no planner."""
Action = Callable[[argparse.Namespace], int]
OF_MEMORY = re.compile(r"out of memory|bad_alloc|allocate memory", re.IGNORECASE)
"""What libraries say where memory is refused."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is returned.

    0 done, 1 ran but the answer is no, 2 bad input or missing tool, 3 a mistake of our own, 130 interrupted; 143 and 129 stopped
    by SIGTERM and SIGHUP, on the same way.
    """
    try:
        prepare_streams()
        options = parser().parse_args(arguments)
        options.arguments = list(sys.argv[1:] if arguments is None else arguments)
        with stopped_by_signals():
            return _run(options)
    except DovetailError as error:
        print(f"dovetail: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as stop:
        cause = stop.__cause__ if isinstance(stop, Interrupted) else stop
        how, number = (f"stopped by {cause}", cause.number) if isinstance(cause, Stopped) else ("interrupted", signal.SIGINT)
        kept = stop if isinstance(stop, Interrupted) else "nothing half-written was left behind"
        with suppress(OSError):  # of a terminal that was closed
            print(f"dovetail: {how}; {kept}", file=sys.stderr)
        return 128 + number
    except OSError as error:
        return abandon_output(error)
    except Exception as error:
        if not _is_of_memory(error):
            raise
        said = f" ({error})" if isinstance(error, SystemError) else ""
        print(f"dovetail: out of memory{said}; use a smaller model or fewer frames", file=sys.stderr)
        return 2


def _is_of_memory(error: Exception) -> bool:
    """Whether memory was refused: libraries in C say so by other errors, or forget to say so, which is a SystemError."""
    return isinstance(error, MemoryError | SystemError) or OF_MEMORY.search(str(error)) is not None


def _run(options: argparse.Namespace) -> int:
    """The exit code of the command that was asked for."""
    if getattr(options, "json", None) not in (None, "-"):
        check_file(options.json)
    action = action_of(options.command)
    if options.wide:
        from dovetail.terminal import wide  # here, because help and mistakes need no tables
        with wide():
            code = action(options)
    else:
        code = action(options)
    flush_output()
    return code


def action_of(command: str) -> Action:
    """The function that runs a command; it returns the exit code."""
    action: Action = getattr(import_module(f"dovetail.cli.actions.{ACTIONS[command]}"), f"{command.replace('-', '_')}_command")
    return action


class Parser(argparse.ArgumentParser):
    """One sentence where arguments are wrong, with the nearest choice where one was mistyped."""

    def error(self, message: str) -> NoReturn:
        """Exit with code 2 after one line on standard error."""
        found = re.search(r"invalid choice: '?([^']*?)'? \(choose from (.*)\)$", message)
        near = suggestion(found[1], re.findall(r"[\w.+-]+", found[2])) if found else ""
        self.exit(2, f"{self.prog}: {message}{near}; `{self.prog} --help` explains\n")


class Grouped(Parser):
    """Commands in groups, in the order of their use."""

    def format_help(self) -> str:
        """The program's help."""
        (commands,) = (a for a in self._actions if isinstance(a, argparse._SubParsersAction))
        known = {action.dest: action for action in commands._get_subactions()}
        formatter = self._get_formatter()
        formatter.add_text(self.description)
        formatter.add_usage("%(prog)s COMMAND ... [-h] [--version]", (), ())
        for title, names in GROUPS.items():
            formatter.start_section(title)
            formatter.add_arguments([known[name] for name in names])
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()


def parser() -> argparse.ArgumentParser:
    """All commands with their arguments and examples; every one of them can give its result as JSON."""
    top: argparse.ArgumentParser = Grouped(
        prog="dovetail", description="Join CPU, GPU and FPGA into one bit-exact accelerator for convolutional networks.",
        epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--version", action="version", version=f"dovetail {__version__}")
    commands = Commands(top.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser))
    for group in (models, plans, builds, devices, reproduce, training, setup):
        group.add_commands(commands)
    for command in commands.parsers.choices.values():
        command.add_argument("--wide", action="store_true", help="tables as wide as they are, not wrapped to the terminal")
        command.add_argument("--json", metavar="FILE", help="write the result as JSON; '-' prints it")
    return top
