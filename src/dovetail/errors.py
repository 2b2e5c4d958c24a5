"""The error family: one root, children by whose problem it is.

Every message has the form *where: what is wrong, what was found; what is allowed or what to do*.
The command line turns any of them into one line and an exit code; a traceback is always our own bug.
"""

from __future__ import annotations


class DovetailError(Exception):
    """Root of everything Dovetail raises on purpose; `exit_code` is what the command line returns."""

    exit_code = 2


class ModelError(DovetailError):
    """The model file or its contents cannot be used."""


class PlatformError(DovetailError):
    """A board, device or link description is wrong or unknown."""


class UnsupportedError(DovetailError):
    """A device or a format cannot express what was asked of it."""


class UsageError(DovetailError):
    """An argument or an input file of the user is wrong."""


class ToolError(DovetailError):
    """An external tool is missing, failed or ran out of time; the message says how to get or mend it."""


class MissingToolError(ToolError):
    """An external tool is not installed."""


class UnverifiedError(ToolError):
    """A build is complete and kept, but a tool that verifies it is missing or failed."""


class Interrupted(KeyboardInterrupt):
    """An interrupt where finished work is kept; the text says where, and how to go on."""


class RangeWarning(UserWarning):
    """Frames have values that a quantized network clips."""


class BuildError(DovetailError):
    """A build folder is incomplete, foreign or of another schema."""


class InfeasibleError(DovetailError):
    """No plan meets the limits; the message names the limit and by how much it is missed."""

    exit_code = 1
    excess = float("inf")
    """By which fraction of the limit, where one limit alone is missed."""


class InternalError(DovetailError, AssertionError):
    """A check of our own work failed: no input is to blame, and no result is given. The message asks for a report."""

    exit_code = 3

    def __init__(self, message: str) -> None:
        super().__init__(f"internal error: {message}; please report this, with the command and its input")


class MismatchError(DovetailError):
    """A device computed something else than the reference: names tensor, index, expected and found."""

    exit_code = 1


class TransportError(DovetailError):
    """A board or the link to it did not do what its contract says: names register, port or message, expected and found."""

    exit_code = 1
