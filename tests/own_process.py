"""What only a new process can show: imports, memory that ends, dispatch to libraries.

Run by ``test_own_process.py``. Prints how many modules were imported; for each
estimator the errors of fits that were short of memory; and for each how many of
scikit-learn's checks it passes with ``array_api_dispatch=True``, which is allowed only
if SciPy's array API support is enabled before SciPy is imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path
from unittest import SkipTest

#: Every connection begins with one of these.
FORBIDDEN = ("socket.__new__", "socket.getaddrinfo", "socket.gethostbyname")


def refuse(event, _arguments):
    """An audit hook, which sees sockets of the standard library and of extensions."""
    if event in FORBIDDEN:
        raise AssertionError(f"{event} was called")


if __name__ == "__main__":
    sys.addaudithook(refuse)  # before anything else is imported

import numpy as np  # noqa: E402
import sklearn  # noqa: E402
from sklearn.base import BaseEstimator, clone  # noqa: E402
from sklearn.utils.estimator_checks import estimator_checks_generator  # noqa: E402

import kernelweave  # noqa: E402
from estimators import ONE_EACH, SETTINGS, cheap, targets_for  # noqa: E402
from kernelweave import _array  # noqa: E402
from kernelweave.kernels.spec import gram_stack, resolve_kernels  # noqa: E402
from kernelweave.views.columns import (  # noqa: E402
    View,
    split_views,
    validate_features,
)
from kernelweave.views.precomputed import validate_precomputed  # noqa: E402
from models.test_state import Untouched, check_unfitted, draw  # noqa: E402

#: Whose limit of the address space ends the memory.
LINUX = sys.platform.startswith("linux")
LIBRARIES = ("array_api_strict", "torch")
NAMES = ("MultipleKernelFDA-l1", "MultipleKernelSVC", "MixtureKDA")
VIEWS = [("left", "rbf", [0, 1, 2]), ("right", ["linear", "laplacian"], [3, 4, 5])]
DISPATCHED = [("all", ["linear", "rbf"], slice(None))]


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


def check_dispatch(name, library):
    """How many of the checks of arrays of a library the estimator passes."""
    passed = 0
    for estimator, check in estimator_checks_generator(cheap(name, DISPATCHED)):
        if "array_api" not in repr(check) or repr(library) not in repr(check):
            continue
        try:
            check(estimator)
        except SkipTest:
            continue
        except Exception as error:
            print("failed", f"{name} {check!r}: {error!r:.1000}")
        passed += 1
    return passed


def check_own_dispatch():
    """Kernels are the same, in the library of the rows."""
    import torch

    X = np.random.default_rng(0).uniform(size=(5, 4))
    names = ["auto", "polynomial", "laplacian", "chi2", "cosine"]
    grams = []
    for data in (X, X.astype(object), torch.asarray(X)):
        checked = validate_features(BaseEstimator(), data, reset=True)
        view = View("v", "auto", None)
        (block,) = split_views(checked, [view], [[0, 1, 2, 3]])[0]
        grams.append(list(gram_stack(resolve_kernels(names, block, "v"), block)))
        kind = torch.Tensor if isinstance(data, torch.Tensor) else np.ndarray
        assert type(grams[-1][0]) is kind
    for a, b, c in zip(*grams, strict=True):
        assert abs(a - b).max() == 0
        assert abs(a - c.numpy()).max() < 1e-13
    K, _ = validate_precomputed(BaseEstimator(), torch.eye(3), reset=True)
    assert K.shape == (3, 3, 1)


if __name__ == "__main__":
    print("imported", every_module())
    if LINUX:
        memory, _array._host_bytes = _array._host_bytes, lambda: None  # none refused
        for name in NAMES:
            model, (X, codes) = clone(SETTINGS[name]).set_params(views=VIEWS), draw()
            model.fit(X, targets_for(model, codes))
            print("starved", name, *out_of_memory(model, X))
        _array._host_bytes = memory
    if all(map(importlib.util.find_spec, LIBRARIES)):
        for i, name in enumerate(ONE_EACH):  # the libraries take turns
            print("checked", name, check_dispatch(name, LIBRARIES[i % 2]))
        with sklearn.config_context(array_api_dispatch=True):
            check_own_dispatch()
        print("dispatched")
