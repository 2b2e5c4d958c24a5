"""Compiled kernels that must not run: faults of compilers, known by the code they make.

**Shared memory read before it is written.** Hopper's matrix instructions (`wgmma`) read operands in shared memory by a way of
their own, the asynchronous proxy. What threads stored there arrives for certain only if each of them fences its stores for that
proxy first and all meet at a barrier then. Where one operand comes through registers, because its values are too narrow to be
copied asynchronously into a pipelined loop, or because they are changed after they were loaded, Triton (3.6 to 3.9) takes the
barrier that the way through registers needs, or the one behind the copies of the other operand, for enough and fences after it: a
warp may then multiply what another warp's stores have not replaced yet. Kernels multiply values as they were loaded
(`gpu/triton/conv.operand`), and without pipelining where they are narrow.

**Descriptors that are spilled.** Where registers do not suffice, ptxas (12.8) keeps `wgmma`'s descriptors of shared memory
among what it spills, and such a kernel was seen to read beyond its shared memory.

**Halves that are mistaken for each other.** ptxas (12.8) computes 16-bit maxima and minima two at a time. In a 7x7 convolution
whose rows and columns LLVM had narrowed to 16 bits, and compared with the size of the map at once (as their maximum), it asked
of a pixel whether the one two columns further lies inside, and read before the first byte of the image (PTX right by an
interpreter, machine code wrong, the access shown by compute-sanitizer). Kernels hide what they know of rows and columns
(`gpu/triton/conv.unbounded`), and what decides by such a maximum nevertheless is not launched.
"""

from __future__ import annotations

import re

STEP = re.compile(r"^\s*(?:@!?%p\d+\s+)?(?:(?P<store>st\.shared|stmatrix)|(?P<fence>fence\.proxy\.async)"
                  r"|(?P<barrier>bar\.sync|barrier\.sync)|(?P<product>wgmma\.mma_async))|^(?P<loop>\$L__BB\w+:.*Loop Header)",
                  re.MULTILINE)

GROUPED = "wgmma.mma_async"
"""Hopper's matrix instructions of four warps."""
MOST_SPILLED = 256
"""Registers of a thread that a kernel may keep in memory: the kilobyte of stack that a GPU has ready for every thread. For more,
the driver moves all stacks while kernels overlap, and nothing so slow is worth that."""
HALVES = re.compile(r"^\s*(?:@!?%p\d+\s+)?(?:max|min)\.[us]16(?:x2)?\s+(%r?s?\d+),", re.MULTILINE)
COMPARED = re.compile(r"^\s*(?:@!?%p\d+\s+)?setp\.\w+\.\w+\s+%p\d+,\s*([^;]*);", re.MULTILINE)


def distrusted(ptx: str, spilled: int) -> bool:
    """Whether a kernel with this code, that spills so many registers, must not be launched."""
    return spills_too_much(ptx, spilled) or reads_too_early(ptx) or compares_halves(ptx)


def spills_too_much(ptx: str, spilled: int) -> bool:
    """Whether registers do not suffice, which fewer values loaded ahead would hardly change."""
    return spilled > (0 if GROUPED in ptx else MOST_SPILLED)


def compares_halves(ptx: str) -> bool:
    """Whether a load, or anything else, is decided by the larger or smaller one of two 16-bit integers.

    Results that are only kept in bounds, as those of additions of bytes are, decide nothing.
    """
    chosen = set(HALVES.findall(ptx))
    return any(operand.strip() in chosen for each in COMPARED.findall(ptx) for operand in each.split(","))


def reads_too_early(ptx: str) -> bool:
    """Whether a matrix instruction follows a store to shared memory without a fence and then a barrier in between.

    Operands that are copied asynchronously are no stores. What was stored before a loop is not asked about inside it. A store
    that no matrix instruction reads counts too: rather a kernel too few than a wrong one.
    """
    stored = fenced = False
    for step in STEP.finditer(ptx):
        if step["loop"]:
            stored = fenced = False
        elif step["store"]:
            stored, fenced = True, False
        elif step["fence"]:
            fenced = stored
        elif step["barrier"]:
            stored = stored and not fenced
        elif stored:
            return True
    return False
