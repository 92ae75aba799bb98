"""Fair timing (one thread, tasks in turn, medians) and a record of the machine.

What is loaded here belongs to Python itself, so that a task in a process of its own can
start from little memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import gc
import importlib.metadata
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
#: What begins the line with the result of a task in a process of its own.
MARK = "RESULT "
PACKAGES = (
    "numpy",
    "scipy",
    "scikit-learn",
    "array-api-compat",
    "cvxpy",
    "clarabel",
    "scs",
    "torch",
    "MKLpy",
    "himalaya",
    "cupy",
)


class OutOfTimeError(Exception):
    """A task used up its CPU time."""


@dataclass
class Timing:
    """Seconds of each repeat of one task, and its last return value."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    result: Any = None
    #: The limit, if the task was stopped there; its time is then a lower bound.
    stopped_at: float | None = None

    @property
    def cpu_s(self) -> float:
        """Median CPU seconds, or the limit at which the task was stopped."""
        return self.stopped_at or statistics.median(self.cpu)

    @property
    def wall_s(self) -> float:
        """Median elapsed seconds, or NaN if the task was stopped."""
        return statistics.median(self.wall) if self.wall else float("nan")

    def shown(self, digits: int = 3) -> str:
        """The CPU seconds as text, with ">" before a limit."""
        return f"{'> ' if self.stopped_at else ''}{self.cpu_s:.{digits}g}"


@dataclass
class Section:
    """One table of the page, and its requirements."""

    title: str
    setting: str
    columns: list[str]
    rows: list[list[Any]] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def check(self, what: str, measured: str, required: str, passed: bool) -> None:
        """Record whether a requirement is met."""
        self.checks.append(
            {"what": what, "measured": measured, "required": required, "passed": passed}
        )


def alternate(
    tasks: dict[str, Callable[[], Any]],
    repeats: int = 5,
    *,
    budget_s: float = 20.0,
    limit_s: float | None = None,
    warm_up: bool = True,
) -> dict[str, Timing]:
    """Time tasks in turn, so that a busy moment of the machine affects all of them.

    A task is not repeated once it has used ``budget_s`` of CPU time, and is stopped at
    ``limit_s``. The first call of each task is not counted if it was quick.
    """
    timings = {name: Timing() for name in tasks}
    for number in range(repeats):
        for name, task in tasks.items():
            timing = timings[name]
            if timing.stopped_at or sum(timing.cpu) > budget_s:
                continue
            if warm_up and number == 0:
                _measure(task, timing, limit_s)
                if timing.stopped_at or timing.cpu[0] > 1.0:
                    continue
                timing.cpu.clear()
                timing.wall.clear()
            _measure(task, timing, limit_s)
    return timings


def _measure(task: Callable[[], Any], timing: Timing, limit_s: float | None) -> None:
    timing.result = None
    gc.collect()
    try:
        with limit(limit_s):
            timing.result, cpu, wall = clocked(task)
    except OutOfTimeError:
        timing.stopped_at = limit_s
        return
    timing.cpu.append(cpu)
    timing.wall.append(wall)


def clocked(task: Callable[[], Any]) -> tuple[Any, float, float]:
    """The result of a task, its CPU seconds, and the seconds that passed."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = task()
    return result, time.process_time() - cpu, time.perf_counter() - wall


@contextlib.contextmanager
def limit(seconds: float | None, elapsed: bool = False) -> Iterator[None]:
    """Raise :class:`OutOfTimeError` inside the block after that much CPU time.

    Or after that many seconds, if they are to be ``elapsed`` ones.
    """
    if seconds is None or not hasattr(signal, "setitimer"):
        yield
        return
    number, timer = signal.SIGPROF, signal.ITIMER_PROF
    if elapsed:
        number, timer = signal.SIGALRM, signal.ITIMER_REAL

    def stop(*_: Any) -> None:
        raise OutOfTimeError(f"more than {seconds} s")

    before = signal.signal(number, stop)
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0.0)
        signal.signal(number, before)


def in_own_process(program: str, *words: Any, **settings: Any) -> Any:
    """What a program passes to :func:`answer` when run with ``--child`` and words.

    The settings are environment variables.
    """
    done = subprocess.run(
        [sys.executable, program, "--child", *map(str, words)],
        env=os.environ | {name: str(value) for name, value in settings.items()},
        capture_output=True,
        text=True,
        check=False,
    )
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            return json.loads(line.removeprefix(MARK))
    raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr[-2000:]}")


def answer(found: Any) -> None:
    """Print the result of a task in a process of its own."""
    print(MARK + json.dumps(found))


def threads(count: int) -> dict[str, int]:
    """Environment variables that give a process so many threads."""
    return {f"{library}_NUM_THREADS": count for library in ("OMP", "OPENBLAS")}


def one_thread() -> None:
    """Limit every thread pool of this process to one thread; call this first."""
    # Read by libraries as they are loaded, and by child processes.
    for library in ("OMP", "OPENBLAS", "MKL", "RAYON"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    import numpy as np  # noqa: F401  its BLAS must be loaded for the next line to find it
    import threadpoolctl

    threadpoolctl.threadpool_limits(1)
    with contextlib.suppress(ImportError):
        import torch

        torch.set_num_threads(1)


def environment() -> dict[str, Any]:
    """Machine, versions, date, commit and load."""
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{_cpu_model()}, {os.cpu_count()} cores",
        "load_average": load_average(),
        "python": platform.python_version(),
        "versions": {name: version for name in PACKAGES if (version := _version(name))},
        "commit": _commit(),
    }


def load_average() -> list[float]:
    """Average number of runnable processes over the last 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return None


def _commit() -> str:
    """Short hash, with a plus if the sources differ from it."""
    root = Path(__file__).parent.parent

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
        return done.stdout.strip()

    try:
        commit = git("rev-parse", "--short", "HEAD")
        changed = git("status", "--porcelain", "--", "src")
    except OSError:
        return "unknown"
    return commit + ("+" if changed else "") if commit else "unknown"


def measured(run: Callable[[], Section]) -> dict[str, Any]:
    """A section with the seconds it took, and the machine.

    The commit is that at the start, the load that of the run.
    """
    place = environment()
    section, _, wall = clocked(run)
    return {
        **dataclasses.asdict(section),
        "environment": place | {"load_average": load_average()},
        "seconds": round(wall, 1),
    }


def save(path: Path, result: dict[str, Any]) -> None:
    """Write what was measured."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
