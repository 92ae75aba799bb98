"""How the experts of a mixture are combined for a row: fixed or localised weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave._array import Array, device, from_numpy, namespace, to_numpy
from kernelweave._chunks import numbered, row_chunks
from kernelweave.kernels.maps.diagonals import DiagonalSource
from kernelweave.kernels.maps.sources import FeatureSource
from kernelweave.models.mixture.experts import ViewMaps
from kernelweave.views.missing import ObservedViews, fill_rows, take_rows

__all__ = ["MixtureProjector", "combine_weights"]

#: Deviation of a diagonal from 1, and of entries from 0, that is rounding.
SAME_SIMILARITY = 1e-6


def combine_weights(
    weights: np.ndarray,
    usable: np.ndarray,
    similarity: np.ndarray | None = None,
    mass: np.ndarray | None = None,
    form: str = "kde",
) -> np.ndarray:
    """Weights (m, p, k) of the experts for each row and class.

    Prior weights are ``pi_l`` over their sum over the experts that a row has (Eq. 23).
    Posterior weights (Eqs. 24-26) multiply them by ``s_l(x)``, the similarity of the
    row to the training rows that expert l is responsible for.

    Parameters
    ----------
    weights : ndarray of shape (p, k)
        pi.
    usable : ndarray of bool of shape (m, p, k)
        Experts that the row has and that may speak about the class. If all of them
        have weight zero they count alike; a row without any has weights zero.
    similarity : ndarray of shape (m, p, k), optional
        s; prior weights if None.
    mass : ndarray of shape (p, k), optional
        ``sum_i gamma_il``, which the form "kde" divides the similarity by.
    form : {"kde", "normalised", "printed"}
        "printed" is Eq. 26: its weights do not sum to one, by an amount that depends on
        x. "normalised" divides by the sum; pi counts twice in it. In "kde" the
        similarity is a density of the rows of the expert, as the text has it.
    """
    prior = np.where(usable, weights[None], 0.0)
    total = np.sum(prior, axis=1, keepdims=True)
    count = np.maximum(np.sum(usable, axis=1, keepdims=True), 1)
    prior = np.where(total > 0, prior / np.where(total > 0, total, 1.0), usable / count)
    if similarity is None:
        return prior
    near = np.where(usable, similarity, 0.0)
    if form == "kde":
        assert mass is not None
        near = np.where(mass > 0, near / np.where(mass > 0, mass, 1.0), 0.0)
    if form == "printed":
        total = np.sum(near, axis=1, keepdims=True)
        local = prior * near / np.where(total > 0, total, 1.0)
    else:
        local = prior * near
        total = np.sum(local, axis=1, keepdims=True)
        local = local / np.where(total > 0, total, 1.0)
    # Far from all training rows every similarity is 0: the prior weights remain.
    return np.where(total > 0, local, prior)


class MixtureProjector:
    """Means of the experts, and their similarities, for new rows.

    Parameters
    ----------
    maps : ViewMaps
        The kernels.
    coef : list of arrays of shape (n_view, k)
        Coefficients of each expert; None for one that is constant.
    intercept, weights : ndarray of shape (p, k)
        Intercepts and weights of the experts.
    allowed : ndarray of bool of shape (p, k)
        Which expert may speak about which class.
    responsibilities : ndarray of shape (n, p, k)
        gamma of the training rows.
    zero : bool
        Whether a missing view counts as a row of zeros instead of being left out.
    """

    def __init__(
        self,
        maps: ViewMaps,
        coef: list[Array | None],
        intercept: np.ndarray,
        weights: np.ndarray,
        allowed: np.ndarray,
        responsibilities: np.ndarray,
        zero: bool,
    ) -> None:
        self.maps, self.coef, self.intercept = maps, coef, intercept
        self.weights, self.allowed, self.zero = weights, allowed, zero
        self.responsibilities = responsibilities
        self.mass = np.sum(responsibilities, axis=0)

    def project(self, data: ObservedViews, form: str | None) -> Array:
        """Combined means (m, k) of rows; ``form`` of localised weights or None."""
        parts, first = [], 0
        for rows, seen in self._chunks(data):
            with numbered(first):
                means, similarity = self._speak(rows, seen, form is not None)
            xp = namespace(means)
            share = from_numpy(self._share(seen, similarity, form), means)
            parts.append(xp.sum(share * means, axis=1))
            first += len(seen)
        return xp.concat(parts)

    def shares(
        self, data: ObservedViews, form: str | None, own: bool = False
    ) -> np.ndarray:
        """Weights (m, p, k) of the experts for rows.

        ``own`` says that these are the training rows, each to be left out of the
        similarity to itself.
        """
        if form is None:
            return self._share(data.observed, None, None)
        parts, first = [], 0
        for rows, seen in self._chunks(data):
            _, similarity = self._speak(rows, seen, True)
            if own:  # the similarity of a row to itself is 1
                similarity = similarity - self.responsibilities[first:][: len(seen)]
                similarity = np.maximum(similarity, 0.0)
            parts.append(self._share(seen, similarity, form))
            first += len(seen)
        return np.concatenate(parts)

    def check_similar(self) -> None:
        """Refuse kernels that say nothing of similarity without a diagonal."""
        for v, one in enumerate(self.maps.maps):
            source = one.source
            assert isinstance(source, DiagonalSource)
            for i in one.active:
                made = isinstance(source.source, FeatureSource)
                if not made and not _plain(source, i):
                    e = int(self.maps.first[v]) + i
                    raise ValueError(
                        "projection='posterior' compares rows by their kernel values: "
                        f"the precomputed kernel {e} ({one.names[i]!r}) must have no "
                        "negative entries and ones on its diagonal (its least entry is "
                        f"{source.lowest[i]:.3g}); use K_ij / sqrt(K_ii K_jj), or "
                        "projection='prior'"
                    )

    def _share(
        self, seen: np.ndarray, similarity: np.ndarray | None, form: str | None
    ) -> np.ndarray:
        kernels = seen[:, self.maps.view_of]
        if self.zero:
            kernels = np.ones_like(kernels)
        usable = kernels[:, :, None] & self.allowed[None]
        return combine_weights(
            self.weights, usable, similarity, self.mass, form or "kde"
        )

    def _chunks(self, data: ObservedViews) -> Any:
        """Rows a chunk at a time, one array a view, and which of them are there."""
        m = len(data.observed)
        longest = max(one.source.n_samples for one in self.maps.maps)
        for part in row_chunks(m, longest):
            seen = data.observed[part]
            rows = []
            for v, one in enumerate(self.maps.maps):
                if isinstance(data.blocks, list):
                    filler = one.source.source.blocks[0][0, :]  # type: ignore[attr-defined]
                    rows.append(
                        [fill_rows(data.blocks[v][part, :], seen[:, v], filler)]
                    )
                else:
                    rows.append(self._columns(data.blocks[part, :, v : v + 1], v))
            yield rows, seen

    def _columns(self, stack: Array, v: int) -> Array:
        """Columns of the training rows that have precomputed kernel ``v``."""
        xp, kept = namespace(stack), self.maps.observed[:, v]
        if np.all(kept):
            return stack
        return xp.permute_dims(
            take_rows(xp.permute_dims(stack, (1, 0, 2)), kept), (1, 0, 2)
        )

    def _speak(
        self, rows: list[Any], seen: np.ndarray, similar: bool
    ) -> tuple[Array, np.ndarray | None]:
        """Means (m, p, k) and, if asked for, similarities (m, p, k) of all experts."""
        m, (p, k) = len(seen), self.weights.shape
        means: list[Any] = [None] * p
        near = np.zeros((m, p, k)) if similar else None
        for v, one in enumerate(self.maps.maps):
            first = int(self.maps.first[v])
            grams = one.source.cross(rows[v], one.active)
            for i, gram in zip(one.active, grams, strict=True):
                e, xp = first + i, namespace(gram)
                here = xp.asarray(seen[:, v], dtype=gram.dtype, device=device(gram))
                centred = one.center(i, gram, rows[v])
                mean = (centred @ self.coef[e]) * here[:, None]
                means[e] = mean + from_numpy(self.intercept[e], gram)[None, :]
                if near is not None:
                    kept = self.maps.observed[:, v]
                    gamma = from_numpy(self.responsibilities[kept, e], gram)
                    alike = _similarity(one.source, i, gram, rows[v])
                    near[:, e] = to_numpy(alike @ gamma) * seen[:, v, None]
        silent = next(mean for mean in means if mean is not None) * 0.0
        means = [silent if mean is None else mean for mean in means]
        return namespace(silent).stack(means, axis=1), near


def _plain(source: DiagonalSource, i: int) -> bool:
    """Whether a kernel is a similarity as it is: in [0, 1], with ones for equals."""
    diagonal, lowest = source.as_defined(i)
    xp = namespace(diagonal)
    off = float(xp.max(xp.abs(diagonal - 1.0)))
    return lowest >= -SAME_SIMILARITY and off <= SAME_SIMILARITY


def _similarity(source: Any, i: int, gram: Array, rows: Any) -> Array:
    """The kernel itself where it is a similarity, else ``(1 + cosine) / 2``."""
    xp = namespace(gram)
    gram = source.cross_as_defined(i, gram, rows)
    if _plain(source, i):
        lowest = float(xp.min(gram))
        if lowest < -SAME_SIMILARITY:
            raise ValueError(
                f"kernel {source.names[i]!r} has no negative entries between the "
                f"training rows, but {lowest:.3g} for a new one; posterior weights "
                "compare rows by kernel values between 0 and 1"
            )
        return gram
    own = source.diagonal_as_defined(i, rows)
    norms = xp.sqrt(own[:, None] * source.as_defined(i)[0][None, :])
    nothing = norms <= 0  # a row of zeros is like any other
    cosine = gram / xp.where(nothing, xp.ones_like(norms), norms)
    return 0.5 + 0.5 * xp.where(nothing, xp.zeros_like(cosine), cosine)
