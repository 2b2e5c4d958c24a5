"""Child process that runs a Yosys script with the pyosys package: `python pyosys_child.py SCRIPT`.

Started by path and never imported: pyosys aborts the whole interpreter on an error, which only a child may do.
"""

import sys

from pyosys import libyosys  # type: ignore[import-untyped, unused-ignore]

if __name__ == "__main__":
    design = libyosys.Design()
    libyosys.run_pass(f"script {sys.argv[1]}", design)
