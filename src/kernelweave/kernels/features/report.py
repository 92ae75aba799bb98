"""How each kernel was represented, why, and how accurately."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FeatureReport", "MapReport"]

#: A held-out kernel error above this earns a remark in the certificate.
POOR = 0.2


@dataclass(frozen=True)
class MapReport:
    """A kernel and its features.

    Attributes
    ----------
    kernel : str
        Name of the kernel.
    how : str
        "exact", "Nystroem" or "random Fourier".
    n_features : int
        Number of features.
    error : float
        ``norm(P(K - ZZ')P) / norm(PKP)`` (Frobenius norms) on rows that were not used
        to build the map; 0 for an exact map, NaN if there were too few such rows.
    """

    kernel: str
    how: str
    n_features: int
    error: float


@dataclass(frozen=True)
class FeatureReport:
    """How the kernels of a fit were represented; ``print`` shows it as a table.

    Attributes
    ----------
    representation : {"kernels", "rows", "moments"}
        n x n kernel matrices, features of all rows, or one-pass moments of features.
    why : str
        The reason, as a sentence.
    n_features : int
        Number D of features of all kernels together; 0 for "kernels".
    maps : tuple of MapReport
        One per kernel; empty for "kernels".
    """

    representation: str
    why: str
    n_features: int = 0
    maps: tuple[MapReport, ...] = ()

    @property
    def worst_error(self) -> float:
        """The largest held-out kernel error."""
        return max((m.error for m in self.maps if m.error == m.error), default=0.0)

    @property
    def remarks(self) -> list[str]:
        """Sentences for a certificate."""
        if not self.maps:
            return []
        lines = [f"features: {self.why}"]
        approximate = [m for m in self.maps if m.how != "exact"]
        if approximate:
            lines.append(
                "the optimum is that of approximate kernels: the held-out kernel error "
                f"is at most {self.worst_error:.2g} (features_ has one for each kernel)"
            )
        poor = [m.kernel for m in approximate if m.error > POOR]
        if poor:
            shown = ", ".join(repr(name) for name in poor[:3])
            more = f" and {len(poor) - 3} more" if len(poor) > 3 else ""
            lines.append(
                f"the features of {shown}{more} are a poor copy of the kernel: a "
                "larger n_features would change the answer"
            )
        return lines

    def __str__(self) -> str:
        lines = [f"{self.representation}: {self.why}"]
        lines += [
            f"  {m.kernel:<40} {m.how:<15} {m.n_features:>6} features, "
            f"held-out error {m.error:.2g}"
            for m in self.maps
        ]
        return "\n".join(lines)
