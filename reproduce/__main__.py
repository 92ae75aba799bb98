"""``python -m reproduce``, from the root of a checkout."""

import sys

from reproduce.command import main

if __name__ == "__main__":
    sys.exit(main())
