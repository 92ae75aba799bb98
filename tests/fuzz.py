"""Run the seeded tests, then problems made to fail, until the time is up.

Half of the time goes to the tests of the suite with new random seeds, half to the
random problems of ``stress_certificates.py``. What fails is printed with the command
that reproduces it. The fault it reveals becomes a named case of the suite, which itself
always runs with the same seeds.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time

#: Exit code of pytest when --stop-after ended the run without a failure.
STOPPED = 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    options, pytest_args = parser.parse_known_args()
    end = time.monotonic() + 30.0 * options.minutes
    tried: list[int] = []
    while (left := end - time.monotonic()) > 0:
        seed = random.SystemRandom().randrange(1, 10**9)
        command = [sys.executable, "-m", "pytest", "tests", "-q", "-m", "seeded"]
        command.append("--ignore=tests/browser")
        code = subprocess.run(
            [*command, f"--stop-after={left:.0f}", *pytest_args],
            env={**os.environ, "KERNELWEAVE_TESTS_SEED": str(seed)},
        ).returncode
        tried.append(seed)
        if code not in (0, STOPPED):
            print(
                f"\nSeed {seed} fails. To reproduce:\n"
                f"  KERNELWEAVE_TESTS_SEED={seed} {' '.join(command)}"
            )
            return code
    print(f"\nNo failure with the new seeds: {', '.join(map(str, tried))}")
    stress = [sys.executable, "tests/stress_certificates.py"]
    return subprocess.run([*stress, f"--minutes={options.minutes / 2}"]).returncode


if __name__ == "__main__":
    sys.exit(main())
