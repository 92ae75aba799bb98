"""Which solver goes with which family of problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kernelweave.protocols import Criterion
from kernelweave.solvers.alignment import active_set, aligned_cuts
from kernelweave.solvers.block_newton import block_newton
from kernelweave.solvers.closed_form import closed_form
from kernelweave.solvers.cutting_plane import cutting_plane
from kernelweave.solvers.em import em
from kernelweave.solvers.interior_point import interior_point
from kernelweave.solvers.newton import newton
from kernelweave.solvers.reference.fisher import sdp
from kernelweave.solvers.reference.margin import margin_qcqp, margin_sdp
from kernelweave.solvers.reference.signed import alignment_sdp, signed_sdp
from kernelweave.solvers.solution import Iterate
from kernelweave.solvers.spectral_cuts import spectral_cuts
from kernelweave.solvers.svc_newton import svc_newton
from kernelweave.solvers.working_set import working_set
from kernelweave.weights.base import WeightSet

__all__ = ["METHODS", "Method"]

Method = Callable[[Criterion, WeightSet], Iterator[Iterate]]

#: Solvers of each family of problems by name, each with the number of iterations it may
#: take by default. The first of a family is what "auto" means there, unless the
#: criterion has a ``preferred_method``.
METHODS: dict[str, dict[str, tuple[Method, int]]] = {
    "fisher": {
        "newton": (newton, 60),
        "closed_form": (closed_form, 2000),
        "cutting_plane": (cutting_plane, 1000),
        "working_set": (working_set, 100),
        "sdp": (sdp, 2),
    },
    "margin": {
        "interior_point": (interior_point, 400),
        "newton": (svc_newton, 60),
        "closed_form": (closed_form, 2000),
        "cutting_plane": (cutting_plane, 1000),
        "qcqp": (margin_qcqp, 2),
        "sdp": (margin_sdp, 2),
    },
    "alignment": {"active_set": (active_set, 2), "sdp": (alignment_sdp, 2)},
    "signed alignment": {
        "spectral_cuts": (aligned_cuts, 200),  # type: ignore[dict-item]
        "sdp": (alignment_sdp, 2),
    },
    "signed margin": {
        "spectral_cuts": (spectral_cuts, 300),  # type: ignore[dict-item]
        "sdp": (signed_sdp, 2),  # type: ignore[dict-item]
    },
    "signed fisher": {"spectral_cuts": (spectral_cuts, 300)},  # type: ignore[dict-item]
    "mixture": {"newton": (newton, 100), "em": (em, 20_000)},
    "block": {
        "newton": (block_newton, 60),  # type: ignore[dict-item]
        "closed_form": (closed_form, 2000),
        "cutting_plane": (cutting_plane, 1000),
        "sdp": (sdp, 2),
    },
}
