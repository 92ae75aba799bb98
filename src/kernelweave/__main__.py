"""``python -m kernelweave`` is the command ``kernelweave``."""

from __future__ import annotations

import sys

from kernelweave.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
