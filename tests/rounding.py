"""Run the suite with linear algebra that rounds as on other processors.

OpenBLAS has products and factorisations for each generation of processors, which add up
in different orders: ``OPENBLAS_CORETYPE`` chooses among those that this one can run.
After them come processors that do not exist: with ``KERNELWEAVE_TESTS_ROUNDING=1``,
or another number, :func:`perturb` changes the results of NumPy's and SciPy's linear
algebra in their last digits. What fails is printed with the command that repeats it.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg

VARIABLE = "KERNELWEAVE_TESTS_ROUNDING"
#: Generations of processors from the oldest on, and seeds of those that do not exist.
CORES = ("Prescott", "Nehalem", "Sandybridge", "Haswell", "SkylakeX")
SEEDS = ("1", "2", "3")
#: Largest relative change of an entry, in units of machine precision.
UNITS = 4.0
#: Entries that are changed at a time: some tests measure memory.
BLOCK = 1024

IN_BOTH = "cholesky", "eigh", "eigvalsh", "inv", "lstsq", "pinv", "qr", "solve", "svd"
ONLY_IN_SCIPY = "cho_solve", "solve_triangular"


@functools.cache  # once: conftest.py is imported by pytest, and by some tests
def perturb(seed: int) -> None:
    """Change the last digits of all results, in the same way for the same result."""
    functions = [
        (module, name) for module in (np.linalg, scipy.linalg) for name in IN_BOTH
    ]
    functions += [(scipy.linalg, name) for name in ONLY_IN_SCIPY]
    for module, name in functions:
        setattr(module, name, _perturbed(getattr(module, name), seed))
    look_up = scipy.linalg.get_lapack_funcs

    @functools.wraps(look_up)
    def get_lapack_funcs(names: Any, *args: Any, **kwargs: Any) -> Any:
        found = look_up(names, *args, **kwargs)
        if isinstance(names, str):
            return _perturbed(found, seed)
        return [_perturbed(each, seed) for each in found]

    scipy.linalg.get_lapack_funcs = get_lapack_funcs


def _perturbed(function: Callable[..., Any], seed: int) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        for part in found if isinstance(found, tuple) else (found,):
            if isinstance(part, np.ndarray) and part.dtype.kind == "f":
                move(part, seed)  # in place: some functions overwrite their arguments
        return found

    return call


def move(values: np.ndarray, seed: int) -> None:
    """Change the last digits of an array, in place."""
    values = values.T if values.flags.f_contiguous else values
    rng = np.random.default_rng(zlib.crc32(np.ascontiguousarray(values), seed))
    size = UNITS * np.finfo(values.dtype).eps
    blocks = [values]
    if values.flags.c_contiguous:
        flat = values.reshape(-1)
        blocks = [flat[i : i + BLOCK] for i in range(0, flat.size, BLOCK)]
    for block in blocks:
        block *= (1.0 + rng.uniform(-size, size, block.shape)).astype(values.dtype)


def _runs_here(core: str) -> bool:
    """Whether this processor can do the linear algebra of another."""
    code = (
        "import numpy, threadpoolctl; numpy.linalg.inv(numpy.eye(99)); "
        "print([each['architecture'] for each in threadpoolctl.threadpool_info() "
        "if each['internal_api'] == 'openblas'])"
    )
    tried = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "OPENBLAS_CORETYPE": core},
        capture_output=True,
        text=True,
    )
    # the oldest that is left goes by several names
    return tried.returncode == 0 and (core == CORES[0] or core in tried.stdout)


def main() -> int:
    command = [sys.executable, "-m", "pytest", "-q", "--ignore=tests/browser"]
    command += ["-p", "no:cacheprovider", *sys.argv[1:]]
    kinds = [("OPENBLAS_CORETYPE", core) for core in CORES if _runs_here(core)]
    failed = []
    for name, value in kinds + [(VARIABLE, seed) for seed in SEEDS]:
        print(f"\n{name}={value}", flush=True)
        if subprocess.run(command, env={**os.environ, name: value}).returncode:
            failed.append(f"{name}={value} {' '.join(command)}")
    print("\n".join(["", "These fail:", *failed] if failed else ["", "None fails."]))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
