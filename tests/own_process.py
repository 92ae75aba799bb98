"""What only a new process can show: imports connect to nothing, and memory ends.

Run by ``test_own_process.py``. Prints how many modules were imported, and for each
estimator the errors of fits that were short of memory.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

#: Every connection begins with one of these.
FORBIDDEN = ("socket.__new__", "socket.getaddrinfo", "socket.gethostbyname")


def refuse(event, _arguments):
    """An audit hook, which sees sockets of the standard library and of extensions."""
    if event in FORBIDDEN:
        raise AssertionError(f"{event} was called")


if __name__ == "__main__":
    sys.addaudithook(refuse)  # before anything else is imported

from sklearn.base import clone  # noqa: E402

import kernelweave  # noqa: E402
from estimators import SETTINGS  # noqa: E402
from kernelweave import _array  # noqa: E402
from models.test_state import Untouched, check_unfitted, draw, targets_for  # noqa: E402

NAMES = ("MultipleKernelFDA-l1", "MultipleKernelSVC", "MixtureKDA")
VIEWS = [("left", "rbf", [0, 1, 2]), ("right", ["linear", "laplacian"], [3, 4, 5])]


def every_module():
    """Import all modules but those that run when they are imported."""
    found = pkgutil.walk_packages(kernelweave.__path__, "kernelweave.")
    names = [module.name for module in found if not module.name.endswith("__main__")]
    for name in names:
        importlib.import_module(name)
    return len(names)


def starved(model, data, room):
    """The name of the error if a fit may allocate ``room`` bytes more, or None."""
    import resource

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))
    try:
        model.fit(*data)
    except MemoryError as error:
        return type(error).__name__
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    return None


def out_of_memory(model, X):
    """Errors of fits that were short of memory, each without a trace."""
    Z, others = draw(400, seed=2)
    data, guard, failed = (Z, targets_for(model, others)), Untouched(model, X), []
    for room in (2**18, 2**21, 2**22, 2**23):
        unfitted = clone(model)
        for each in (unfitted, model):
            error = starved(each, data, room)
            if error is not None:
                failed.append(error)
                check_unfitted(unfitted, X) if each is unfitted else guard.check()
        model.__dict__ = dict(guard.before)
    return failed


if __name__ == "__main__":
    print("imported", every_module())
    _array._host_bytes = lambda: None  # nothing is refused in advance
    for name in NAMES:
        model, (X, codes) = clone(SETTINGS[name]).set_params(views=VIEWS), draw()
        model.fit(X, targets_for(model, codes))
        print(name, *out_of_memory(model, X))
