"""Whether matrix units may read shared memory before it is written: a check of compiled kernels.

Hopper's matrix instructions (`wgmma`) read operands in shared memory by a way of their own, the asynchronous proxy. What threads
stored there arrives for certain only if each of them fences its stores for that proxy first and all meet at a barrier then. Where
a loop is pipelined and one operand comes through registers, because its values are too narrow to be copied asynchronously, Triton
(3.6 to 3.9) takes the barrier behind the copies of the other operand for enough and fences after it: a warp may then multiply
what another warp's stores have not replaced yet. Without pipelining the order is right.
"""

from __future__ import annotations

import re

STEP = re.compile(r"^\s*(?:@!?%p\d+\s+)?(?:(?P<store>st\.shared|stmatrix)|(?P<fence>fence\.proxy\.async)"
                  r"|(?P<barrier>bar\.sync|barrier\.sync)|(?P<product>wgmma\.mma_async))|^(?P<loop>\$L__BB\w+:.*Loop Header)",
                  re.MULTILINE)


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
