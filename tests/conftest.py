"""Fixtures shared by all tests: random seeds, array libraries, the data folder."""

from __future__ import annotations

import gc
import importlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import array_api_compat
import numpy as np
import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings

import rounding

SEED_VARIABLE = "KERNELWEAVE_TESTS_SEED"
DATA_VARIABLE = "KERNELWEAVE_DATA"
DEVICE_VARIABLE = "KERNELWEAVE_TESTS_DEVICE"

#: The suite is the same in every run and on every machine; "make fuzz" draws new seeds.
FIXED_SEEDS = "0"

if number := os.environ.get(rounding.VARIABLE):
    rounding.perturb(int(number))

#: Plots are drawn without a screen; this must be set before matplotlib is imported.
os.environ.setdefault("MPLBACKEND", "Agg")

# No deadline: on a processor shared with other jobs, a fit can take any length of time.
# Examples of hypothesis are drawn anew only where seeds are, in "make fuzz"; the same
# ones need not be many.
settings.register_profile(
    "kernelweave",
    deadline=None,
    max_examples=100 if os.environ.get(SEED_VARIABLE) else 30,
    print_blob=True,
    derandomize=not os.environ.get(SEED_VARIABLE),
)
settings.load_profile("kernelweave")


def parse_seeds(text: str) -> list[int]:
    """Seeds from a list with ranges: "3", "0,1,77" or "0-9,42"."""
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise pytest.UsageError(
                f'{SEED_VARIABLE}={text!r}: write seeds as "3", "0,1,77" or "0-9"'
            )
        seeds.extend(range(int(first), int(last or first) + 1))
    return seeds


SEEDS = parse_seeds(os.environ.get(SEED_VARIABLE) or FIXED_SEEDS)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--stop-after",
        type=float,
        metavar="SECONDS",
        help="start no new test after this time; for 'make fuzz'",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "seeded: draws random numbers from a seed of this run"
    )
    config.addinivalue_line(
        "markers", "one_seed: the first seed is enough; further draws add nothing"
    )
    config.addinivalue_line(
        "markers", "measured: a figure of the first draw, which others need not reach"
    )
    config.pluginmanager.register(_Clock(config.getoption("--stop-after")))


class _Clock:
    """Ends a run on time, once the current test has finished."""

    def __init__(self, seconds: float | None) -> None:
        self.end = None if seconds is None else time.monotonic() + seconds

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self.session = session

    def pytest_runtest_logfinish(self) -> None:
        if self.end is not None and time.monotonic() > self.end:
            self.session.shouldstop = "the time given by --stop-after is up"

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.end is not None and session.testsfailed:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Iterator[None]:
    """No file of tests has examples in its docstrings; only the package does."""
    found = yield
    return [each for each in found if not isinstance(each, DoctestModule)]


def pytest_collection() -> None:
    """Thousands of tests and imported modules stay: leave them out of collections."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("measured"):
            continue
        if "global_random_seed" in getattr(item, "fixturenames", ()):
            item.add_marker("seeded")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """All tests of a file run in one process, so that its fixtures are built once."""
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log)


def pytest_report_header() -> str:
    """Name the seeds of this run."""
    return f"random seeds: {SEED_VARIABLE}={','.join(map(str, SEEDS))}"


@pytest.fixture
def global_random_seed(request: pytest.FixtureRequest) -> int:
    """Each seed of this run, for anything that takes a ``random_state``."""
    return request.param


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Use only the first seed for ``one_seed`` and for tests over array libraries."""
    name = "global_random_seed"
    if name in metafunc.fixturenames:
        several = {"xp_backend", "other_backend"} & set(metafunc.fixturenames)
        one = several or metafunc.definition.get_closest_marker("one_seed")
        seeds = SEEDS[:1] if one else SEEDS
        if metafunc.definition.get_closest_marker("measured"):
            seeds = parse_seeds(FIXED_SEEDS)
        metafunc.parametrize(name, seeds, indirect=True)


@pytest.fixture
def rng(global_random_seed: int) -> np.random.Generator:
    """A generator for each seed of this run."""
    return np.random.default_rng(global_random_seed)


@dataclass(frozen=True)
class ArrayBackend:
    """An array library, and how to make its arrays."""

    name: str
    xp: Any
    device: Any = None

    def asarray(self, values: Any, dtype: str = "float64") -> Any:
        """``values`` as an array of this library."""
        values = np.asarray(values)
        return self.xp.asarray(
            values, dtype=getattr(self.xp, dtype), device=self.device
        )


def find_backend(name: str) -> ArrayBackend:
    """An array library by name; torch on the device of DEVICE_VARIABLE."""
    try:
        library = importlib.import_module(name)
    except ModuleNotFoundError:
        pytest.skip(f"{name} is not installed")
    device = os.environ.get(DEVICE_VARIABLE, "cpu") if name == "torch" else None
    xp = array_api_compat.array_namespace(library.ones(1))
    return ArrayBackend(name, xp, device)


@pytest.fixture(params=["numpy", "array_api_strict", "torch"])
def xp_backend(request: pytest.FixtureRequest) -> ArrayBackend:
    """Each array library."""
    return find_backend(request.param)


@pytest.fixture(params=["array_api_strict", "torch"])
def other_backend(request: pytest.FixtureRequest) -> ArrayBackend:
    """Each array library except NumPy, for comparisons with NumPy's results."""
    return find_backend(request.param)


@pytest.fixture
def xp(xp_backend: ArrayBackend) -> Any:
    """The namespace of each installed array library."""
    return xp_backend.xp


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the larger data sets, named by DATA_VARIABLE."""
    value = os.environ.get(DATA_VARIABLE)
    if not value:
        pytest.skip(f"set {DATA_VARIABLE} to the folder with the data sets to run this")
    path = Path(value)
    if not path.is_dir():
        pytest.fail(f"{DATA_VARIABLE}={value!r} is not a folder", pytrace=False)
    return path


@pytest.fixture
def quick_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack of views with two folds and one penalty, for tests that only show it.

    What is tested does not depend on their number, and more take longer. Functions for
    which no user chooses that number would have to pass it on.
    """
    from kernelweave.evaluation import baselines

    few = {"logisticregressioncv__Cs": [1.0], "logisticregressioncv__cv": 2}
    logistic = baselines._logistic
    monkeypatch.setattr(baselines, "_logistic", lambda: logistic().set_params(**few))
    monkeypatch.setattr(baselines, "STACK_FOLDS", 2)


def _rows_of_two_classes(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 6))
    noise = 0.3 * rng.standard_normal(n)
    return X, np.where(X[:, 0] * X[:, 1] + 0.5 * X[:, 2] + noise > 0, 1.0, -1.0)


def _gaussians(X: np.ndarray, sizes: Any) -> np.ndarray:
    squares = np.sum(X**2, axis=1)
    squared = np.maximum(squares[:, None] + squares - 2 * X @ X.T, 0.0)
    return np.stack([np.exp(-0.5 * squared / size) for size in sizes])


def _three_kernels(X: np.ndarray) -> np.ndarray:
    stack = np.stack([(1 + X @ X.T) ** 2, _gaussians(X, [0.5])[0], X @ X.T])
    size = np.sqrt(np.diagonal(stack, axis1=1, axis2=2))
    return stack / size[:, :, None] / size[:, None, :]


@pytest.fixture(scope="session")
def margin_data() -> SimpleNamespace:
    """Data and kernels of trace n, on which values of margin problems are known."""
    return SimpleNamespace(
        rows=_rows_of_two_classes, gaussians=_gaussians, three=_three_kernels
    )
