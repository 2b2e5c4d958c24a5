"""Whether matrix units may read shared memory before it is written: a check of compiled kernels.

Hopper's matrix instructions (`wgmma`) read operands in shared memory by a way of their own, the asynchronous proxy. What threads
stored there arrives for certain only if each of them fences its stores for that proxy first and all meet at a barrier then. Where
a loop is pipelined and one operand comes through registers, because its values are too narrow to be copied asynchronously, Triton
(3.6 to 3.9) takes the barrier behind the copies of the other operand for enough and fences after it: a warp may then multiply
what another warp's stores have not replaced yet. Without pipelining the order is right.
"""

from __future__ import annotations

import re

STEP = re.compile(r"^\s*(?:@!?%p\d+\s+)?(?:(?P<fence>fence\.proxy\.async)|(?P<barrier>bar\.sync|barrier\.sync)"
                  r"|(?P<product>wgmma\.mma_async))", re.MULTILINE)


def reads_too_early(ptx: str) -> bool:
    """Whether a matrix instruction follows a fence without a barrier in between."""
    fenced = False
    for step in STEP.finditer(ptx):
        if step["fence"]:
            fenced = True
        elif step["barrier"]:
            fenced = False
        elif fenced:
            return True
    return False
