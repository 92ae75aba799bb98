"""Learn which of many kernels matter, and weave them into one classifier.

Names are imported on first use, so that ``import kernelweave`` and the start of the
command line take no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelweave.criteria import Alignment, Fisher, Margin
    from kernelweave.models import (
        Certificate,
        KernelAlignment,
        KernelFDA,
        MixtureKDA,
        MultipleKernelFDA,
        MultipleKernelRidge,
        MultipleKernelSVC,
        ProbabilisticKDA,
        SubspaceKernel,
        SubspaceKernelSVC,
        TransductiveKernelSVC,
    )
    from kernelweave.persistence import load, save
    from kernelweave.solvers import Solution, certify, solve
    from kernelweave.views import join_tables
    from kernelweave.weights import CappedSimplex, LpBall, SignedSum, Simplex

__version__ = "0.1.0.dev0"

__all__ = [
    "Alignment",
    "CappedSimplex",
    "Certificate",
    "Fisher",
    "KernelAlignment",
    "KernelFDA",
    "LpBall",
    "Margin",
    "MixtureKDA",
    "MultipleKernelFDA",
    "MultipleKernelRidge",
    "MultipleKernelSVC",
    "ProbabilisticKDA",
    "SignedSum",
    "Simplex",
    "Solution",
    "SubspaceKernel",
    "SubspaceKernelSVC",
    "TransductiveKernelSVC",
    "__version__",
    "certify",
    "join_tables",
    "load",
    "save",
    "solve",
]

#: Packages that users import from.
_ROOMS = (
    "criteria",
    "datasets",
    "dependence",
    "evaluation",
    "exceptions",
    "inspection",
    "kernels",
    "models",
    "persistence",
    "protocols",
    "report",
    "solvers",
    "views",
    "weights",
)


def __getattr__(name: str) -> object:
    """A public name or package, imported on first use."""
    if name in _ROOMS:
        return import_module(f"kernelweave.{name}")
    if name in __all__:
        rooms = ("models", "criteria", "solvers", "weights", "views", "persistence")
        for room in rooms:
            found = getattr(import_module(f"kernelweave.{room}"), name, None)
            if found is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module 'kernelweave' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
