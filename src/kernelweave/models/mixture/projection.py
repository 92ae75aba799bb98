"""Combine the experts of a mixture for each row, with fixed or local weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernelweave._array import (
    Array,
    from_numpy,
    namespace,
    row_chunks,
    to_numpy,
    zeros,
)
from kernelweave._text import numbered
from kernelweave.kernels.maps.kernel_map import FeatureSource
from kernelweave.models.mixture.experts import ExpertPanel, take_seen
from kernelweave.models.mixture.weights import Mixture
from kernelweave.solvers.mixture import residual_moments
from kernelweave.views.missing import ObservedViews, fill_rows

#: Deviations of a diagonal from 1, and of entries from 0, up to this are rounding.
SAME_SIMILARITY = 1e-6


def prior_weights(weights: np.ndarray, usable: np.ndarray) -> np.ndarray:
    """``pi_l`` (Eq. 23) normalised over the experts that a row has, (m, p, k).

    Parameters
    ----------
    weights : ndarray of shape (p, k)
        pi.
    usable : ndarray of bool of shape (m, p, k)
        Experts that the row has and that may predict the class. If all of them have
        weight zero they count equally; a row without any has zero weights.
    """
    prior = np.where(usable, weights[None], 0.0)
    count = np.maximum(np.sum(usable, axis=1, keepdims=True), 1)
    return _over(prior, np.sum(prior, axis=1, keepdims=True), usable / count)


def posterior_weights(
    prior: np.ndarray, similarity: np.ndarray, mass: np.ndarray
) -> np.ndarray:
    """``pi_l d_l(x) / sum_m pi_m d_m(x)``, ``d_l = s_l / sum_i gamma_il``, (m, p, k).

    Eqs. 24-26 with the normaliser that the text of the paper calls for: ``d_l`` is a
    density estimate of the training rows that expert l is responsible for. Where every
    density is 0, far from all rows, the prior weights remain.

    Parameters
    ----------
    prior : ndarray of shape (m, p, k)
        pi for each row.
    similarity : ndarray of shape (m, p, k)
        ``s_l(x) = sum_i gamma_il k_l(x, x_i)``; 0 for unusable experts.
    mass : ndarray of shape (p, k)
        ``sum_i gamma_il``.
    """
    local = prior * _over(similarity, mass, np.zeros(1))
    return _over(local, np.sum(local, axis=1, keepdims=True), prior)


def _over(part: np.ndarray, total: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """``part / total``, or ``otherwise`` where the total is 0."""
    return np.where(total > 0, part / np.where(total > 0, total, 1.0), otherwise)


class MixtureProjector:
    """Means of the experts, and their similarities, for new rows.

    Parameters
    ----------
    mixture : Mixture
        Experts, weights and responsibilities.
    gaps : bool, default=False
        Whether rows may have only some of the experts.
    """

    #: Mean products of leave-one-out residuals (k, p, p), where rows may have gaps.
    moments: np.ndarray | None = None

    def __init__(self, mixture: Mixture, gaps: bool = False) -> None:
        panel = mixture.panel
        self.maps, self.zero, self.allowed = panel.maps, panel.zero, panel.allowed
        self.coef, self.intercept = panel.coef, panel.intercept
        self.weights = mixture.weights
        # a row counts as often as its weight says
        each = panel.design.each[:, None, None]
        self.responsibilities = each * mixture.responsibilities
        self.mass = np.sum(self.responsibilities, axis=0)
        if gaps:
            self.moments, self.unknown = _moments(panel)

    def project(self, data: ObservedViews, local: bool, each: bool = False) -> Array:
        """Combined means (m, k) of rows, with posterior weights if ``local``.

        With ``each``, the terms of the sum, one per expert: (m, p, k).
        """
        parts = []
        for means, share in self._parts(data, local):
            terms = from_numpy(share, means) * means
            parts.append(terms if each else namespace(terms).sum(terms, axis=1))
        return namespace(*parts).concat(parts)

    def shares(self, data: ObservedViews, local: bool, own: bool = False) -> np.ndarray:
        """Weights (m, p, k) of the experts for rows; posterior ones if ``local``.

        With ``own`` these are the training rows, and each is left out of its own
        similarity.
        """
        if not local:
            return self._share(data.observed, None)
        return np.concatenate([share for _, share in self._parts(data, True, own)])

    def spread(self, seen: np.ndarray) -> np.ndarray | None:
        """Squared error of the combined mean of rows with the views ``seen`` (m, v).

        It is that of training rows left out, with prior weights, averaged over the
        coordinates: (m, k), the same in each. Rows with only weak views are less
        certain than others. None if no rows have gaps, or if zeros fill them, which
        shrink the projection instead.
        """
        if self.moments is None:
            return None
        kinds, which = np.unique(seen, axis=0, return_inverse=True)
        share = self._share(kinds, None)
        error = np.einsum("mlc,clj,mjc->mc", share, self.moments, share, optimize=True)
        error = np.where(np.any(share > 0, axis=1), error, self.unknown)
        mean = np.mean(error, axis=1)[which.reshape(-1), None]
        return np.broadcast_to(mean, (len(seen), error.shape[1]))

    def _parts(
        self, data: ObservedViews, local: bool, own: bool = False
    ) -> Iterator[tuple[Array, np.ndarray]]:
        """Means and weights (m, p, k) of the experts, one chunk of rows at a time."""
        longest = max(one.source.n_samples for one in self.maps.maps)
        for part in row_chunks(len(data.observed), longest):
            seen = data.observed[part]
            rows = [
                self._view(data.blocks, v, part, seen) for v in range(seen.shape[1])
            ]
            with numbered(part.start):
                means, similarity = self._speak(rows, seen, local)
            if similarity is not None and own:  # the similarity of a row to itself is 1
                similarity = np.maximum(similarity - self.responsibilities[part], 0.0)
            yield means, self._share(seen, similarity)

    def _view(self, blocks: Any, v: int, part: slice, seen: np.ndarray) -> Any:
        """Some rows of view ``v``, in the form that its kernels accept."""
        source = self.maps.maps[v].source
        if isinstance(source, FeatureSource):
            return [fill_rows(blocks[v][part, :], seen[:, v])]
        # the columns of the training rows that have the kernel
        return take_seen(blocks[part, :, v : v + 1], self.maps.observed[:, v], axis=1)

    def _share(self, seen: np.ndarray, similarity: np.ndarray | None) -> np.ndarray:
        """Weights (m, p, k) for rows that have the views ``seen`` (m, v)."""
        usable = self._usable(seen)
        prior = prior_weights(self.weights, usable)
        if similarity is None:
            return prior
        return posterior_weights(prior, np.where(usable, similarity, 0.0), self.mass)

    def _usable(self, seen: np.ndarray) -> np.ndarray:
        """Experts (m, p, k) of rows with the views ``seen`` (m, v)."""
        kernels = seen[:, self.maps.view_of]
        if self.zero:
            kernels = np.ones_like(kernels)
        return kernels[:, :, None] & self.allowed[None]

    def _speak(
        self, rows: list[Any], seen: np.ndarray, similar: bool
    ) -> tuple[Array, np.ndarray | None]:
        """Means and, if ``similar``, similarities of all experts, each (m, p, k)."""
        m, (p, k) = len(seen), self.weights.shape
        means = zeros((m, p, k), self.maps.like)
        near = np.zeros((m, p, k)) if similar else None
        for v, one in enumerate(self.maps.maps):
            first = int(self.maps.first[v])
            if not np.any(seen[:, v]):  # the intercept is all that is known
                for e in (first + i for i in one.active):
                    means[:, e, :] = from_numpy(self.intercept[e], means)[None, :]
                continue
            grams = one.source.cross(rows[v], one.active)
            for i, gram in zip(one.active, grams, strict=True):
                e, here = first + i, from_numpy(seen[:, v], gram)
                centred = one.center(i, gram, rows[v])
                mean = (centred @ self.coef[e]) * here[:, None]
                means[:, e, :] = mean + from_numpy(self.intercept[e], gram)[None, :]
                if near is not None:
                    kept = self.maps.observed[:, v]
                    gamma = from_numpy(self.responsibilities[kept, e], gram)
                    alike = _similarity(one.source, i, gram, rows[v], e)
                    near[:, e] = to_numpy(alike @ gamma) * seen[:, v, None]
        return means, near


def _moments(panel: ExpertPanel) -> tuple[np.ndarray, np.ndarray]:
    """Mean products of leave-one-out residuals (k, p, p), and of targets alone (k,)."""
    each, found = panel.design.each, []
    for target, mean in zip(panel.target.T, panel.mean.transpose(2, 0, 1), strict=True):
        residual = target[:, None] - mean
        found.append(residual_moments(residual, np.isfinite(mean), each))
    return np.stack(found), np.average(panel.target**2, axis=0, weights=each)


def _similarity(source: Any, i: int, gram: Array, rows: Any, number: int) -> Array:
    """The kernel itself where it is a similarity, else ``(1 + cosine) / 2``.

    Precomputed kernels must be similarities: nonnegative, with ones on the diagonal.
    """
    xp = namespace(gram)
    gram = source.cross_as_defined(i, gram, rows)
    diagonal, lowest = source.as_defined(i)
    off = float(xp.max(xp.abs(diagonal - 1.0)))
    if lowest >= -SAME_SIMILARITY and off <= SAME_SIMILARITY:
        lowest = float(xp.min(gram))
        if lowest < -SAME_SIMILARITY:
            raise ValueError(
                f"kernel {source.names[i]!r} has no negative entries between the "
                f"training rows, but {lowest:.3g} for a new row; posterior weights "
                "compare rows by kernel values between 0 and 1"
            )
        return gram
    if not isinstance(source, FeatureSource):
        raise ValueError(
            "projection='posterior' compares rows by their kernel values: "
            f"the precomputed kernel {number} ({source.names[i]!r}) must have no "
            "negative entries and ones on its diagonal (its smallest entry "
            f"is {lowest:.3g}); use K_ij / sqrt(K_ii K_jj), or "
            "projection='prior'"
        )
    own = source.diagonal_as_defined(i, rows)
    norms = xp.sqrt(own)[:, None] * xp.sqrt(diagonal)[None, :]
    nothing = norms <= 0  # a row of zeros counts as orthogonal to every other
    cosine = gram / xp.where(nothing, xp.ones_like(norms), norms)
    return 0.5 + 0.5 * xp.where(nothing, xp.zeros_like(cosine), cosine)
