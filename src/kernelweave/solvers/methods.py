"""All methods, and which of them fit a problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kernelweave.protocols import Iterate, Method
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
from kernelweave.solvers.spectral_cuts import spectral_cuts
from kernelweave.solvers.svc_newton import svc_newton
from kernelweave.solvers.working_set import working_set

__all__ = ["METHODS", "choose_method", "fitting_methods"]


def _method(
    name: str,
    run: Callable[[Any, Any], Iterator[Iterate]],
    max_iter: int,
    needs: set[str],
    set_needs: set[str],
) -> Method:
    return Method(name, run, max_iter, frozenset(needs), frozenset(set_needs))


#: If several methods of one name fit a problem, the first is used. "auto" means the
#: first that fits, unless the criterion prefers another.
METHODS: tuple[Method, ...] = (
    _method("newton", block_newton, 60, {"expansion"}, {"norm"}),
    _method("interior_point", interior_point, 400, {"saddle"}, {"norm"}),
    _method("newton", svc_newton, 60, {"saddle"}, {"polyhedron"}),
    _method("newton", newton, 100, {"hessian", "likelihood"}, {"polyhedron"}),
    _method("newton", newton, 60, {"hessian"}, {"polyhedron"}),
    _method("active_set", active_set, 2, {"cosines"}, {"norm"}),
    _method("active_set", aligned_cuts, 2, {"cosines"}, {"polyhedron"}),
    _method("closed_form", closed_form, 2000, {"parts"}, {"norm"}),
    _method("cutting_plane", cutting_plane, 1000, {"averages"}, {"polyhedron"}),
    _method("working_set", working_set, 100, {"hessian", "kernel scores"}, {"norm"}),
    _method("em", em, 20_000, {"likelihood"}, {"norm"}),
    _method("qcqp", margin_qcqp, 2, {"saddle"}, {"norm"}),
    _method("sdp", sdp, 2, {"printed program"}, {"polyhedron"}),
    _method("sdp", margin_sdp, 2, {"saddle"}, {"polyhedron"}),
    _method("sdp", alignment_sdp, 2, {"cosines"}, {"norm"}),
    _method("spectral_cuts", aligned_cuts, 200, {"cosines"}, {"cuts"}),
    _method("spectral_cuts", spectral_cuts, 300, {"averages"}, {"cuts"}),
    _method("sdp", signed_sdp, 2, {"saddle"}, {"cuts"}),
    _method("sdp", alignment_sdp, 2, {"cosines"}, {"cuts"}),
)


def fitting_methods(criterion: Any, weight_set: Any) -> dict[str, Method]:
    """The methods for a criterion and a weight set, or for their classes, by name."""
    found: dict[str, Method] = {}
    for method in METHODS:
        if not method.lacks(criterion, weight_set):
            found.setdefault(method.name, method)
    return found


def choose_method(criterion: Any, weight_set: Any, method: str | Method) -> Method:
    """The method of that name for a problem; "auto" is the one that suits it best.

    Raises
    ------
    ValueError
        If it does not fit: the message says what is missing, and which methods fit.
    """
    fitting = fitting_methods(criterion, weight_set)
    problem = f"{type(criterion).__name__} over {weight_set!r}"
    if isinstance(method, str) and method in fitting:
        return fitting[method]
    if method == "auto" and fitting:
        return fitting.get(criterion.preferred_method, next(iter(fitting.values())))
    if isinstance(method, Method):
        named, method = [method], method.name
    else:
        named = [m for m in METHODS if m.name == method]
    lacking = min((m.lacks(criterion, weight_set) for m in named), key=len, default=[])
    if named and not lacking:
        return named[0]
    missing = f"; it needs {' and '.join(lacking)}" if lacking else ""
    if not fitting:
        raise ValueError(
            f"no method minimises {problem}: the criterion offers "
            f"{sorted(criterion.offers)}, the weight set {sorted(weight_set.offers)}"
            + missing
        )
    raise ValueError(
        f"method must be 'auto' or one of {sorted(fitting)} for {problem}, got "
        f"{method!r}{missing}"
    )
