"""`python -m dovetail.cli`."""

import sys

from dovetail.cli import main

if __name__ == "__main__":
    sys.exit(main())
