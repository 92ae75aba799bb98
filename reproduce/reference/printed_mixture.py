"""What Zhao et al. (2009) print: in-sample EM, the weights of Eq. 26, Eq. 14."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from scipy.special import logsumexp

from kernelweave._array import from_numpy, namespace, require_memory, to_numpy
from kernelweave.exceptions import KernelWarning
from kernelweave.fits.predictive import Expert, PredictivePath, choose_noise
from kernelweave.models.mixture.experts import ExpertPanel
from kernelweave.models.mixture.projection import MixtureProjector
from kernelweave.models.mixture.weights import Mixture
from kernelweave.models.mixture_kda import MixtureKDA, MixtureSample, judge
from kernelweave.models.probabilistic_kda import ProbabilisticKDA
from kernelweave.models.shared.base import Progress, fit_method
from kernelweave.models.shared.inputs import check_parameters, integer, positive
from kernelweave.solvers.loop import LocalLoop, Step
from kernelweave.solvers.mixture import truncated_responsibilities
from kernelweave.solvers.solve import LocalSolution

#: Default number of steps; the paper does not give one.
EM_STEPS = 100
#: What the stationarity of weights is, in words.
CHANGE = "the last step changed a weight by {size:.1e}"

Paths = dict[int, PredictivePath]


def printed_weights(
    prior: np.ndarray, similarity: np.ndarray, mass: np.ndarray
) -> np.ndarray:
    """``pi_l s_l(x) / sum_m s_m(x)``, (m, p, k): Eq. 26 as printed.

    The arguments are those of :func:`~kernelweave.models.mixture.projection.\
posterior_weights`. The weights of a row sum to less than one, to an extent that depends
    on the row.
    """
    total = np.sum(similarity, axis=1, keepdims=True)
    local = prior * similarity / np.where(total > 0, total, 1.0)
    return np.where(total > 0, local, prior)


def printed_variance(model: ProbabilisticKDA, X: Any) -> np.ndarray:
    """``lambda + g(x)' (G + G^2 / lambda)^-1 g(x)``, (m, k): Eq. 14.

    It is multiplied by the amplitude, and ignores views that a row lacks. Far from the
    training rows, where nothing is known, it tends to the noise, unlike the variance of
    :meth:`ProbabilisticKDA.predict_distribution`.
    """
    rows, path = model._observed_rows(X, "printed_variance"), model._path
    cross = model.kernel_map_.cross(rows, to_numpy(model.kernel_weights_))  # (m, n)
    values, noise = to_numpy(path.eigenvalues), to_numpy(model.noise_)
    seen = values > path.smallest_alpha
    scaled = path.design.scale(to_numpy(cross).T).T
    squares = (scaled @ to_numpy(path.vectors)[:, seen]) ** 2
    values = values[seen, None]
    inverse = noise / (values * (values + noise))  # (r, k)
    return (noise + squares @ inverse) * to_numpy(model.amplitude_)


def fit_printed_mixture(
    views: Any,
    X: Any,
    y: Any,
    *,
    projection: Literal["prior", "posterior"] = "prior",
    noise: float = 1.0,
    missing: Literal["error", "available", "zero"] = "error",
    tol: float = 1e-6,
    max_iter: int = EM_STEPS,
    psd: Literal["error", "clip", "trust"] = "error",
) -> MixtureKDA:
    """A mixture fitted by the printed algorithm: Eqs. 13-20, then Eq. 23 or 26.

    Densities are in-sample: each training row is part of the fit. Where a kernel can
    interpolate, the likelihood is unbounded: the noise falls to zero, and the weights
    freeze wherever they happen to be. There is neither a prior on the weights nor an
    amplitude.

    Parameters
    ----------
    views, projection, missing, psd
        As in :class:`MixtureKDA`.
    X, y : array-like
        Rows and labels, as for its ``fit``.
    noise : float, default=1.0
        Initial noise, relative to the mean eigenvalue of a kernel.
    tol : float, default=1e-6
        The largest change of a weight in the last step.
    max_iter : int, default=100
        Maximum number of steps.

    Returns
    -------
    model : MixtureKDA
        Fitted. A later call of its ``fit`` learns as usual.
    """
    model = MixtureKDA(
        views,
        projection=projection,
        noise=noise,
        missing=missing,
        tol=tol,
        max_iter=max_iter,
        cv=None,
        psd=psd,
    )
    check_parameters(model, noise=positive(), max_iter=integer(1))
    return _fit(model, X, y, learn_as_printed)


def fit_printed_posterior(views: Any, X: Any, y: Any, **setting: Any) -> MixtureKDA:
    """A mixture whose posterior projection uses the weights of Eq. 26 as printed.

    The keyword arguments are parameters of :class:`MixtureKDA`, other than ``cv``.
    """
    model = MixtureKDA(views, projection="posterior", cv=None, **setting)
    return _fit(model, X, y, MixtureKDA._learn_mixture)


@fit_method
def _fit(
    model: MixtureKDA,
    X: Any,
    y: Any,
    learn: Callable[[MixtureKDA, MixtureSample, Progress], Mixture],
) -> MixtureKDA:
    """The fit of :class:`MixtureKDA`, with another way to learn, and Eq. 26."""
    sample, progress = model._read(X, y), Progress(model, X, y, None)
    mixture = learn(model, sample, progress)
    projector = PrintedProjector(mixture, model.missing == "available")
    head = judge(sample, mixture, projector, model.projection == "posterior")
    model._publish(sample, mixture, projector, head, folds=None)
    progress.end()
    return model


class PrintedProjector(MixtureProjector):
    """Projects rows with :func:`printed_weights`, where weights are local."""

    def _share(self, seen: np.ndarray, similarity: np.ndarray | None) -> np.ndarray:
        prior = super()._share(seen, None)
        if similarity is None:
            return prior
        usable = self._usable(seen)
        return printed_weights(prior, np.where(usable, similarity, 0.0), self.mass)


def learn_as_printed(
    model: MixtureKDA, sample: MixtureSample, progress: Progress
) -> Mixture:
    """The experts and their weights by :func:`printed_em`."""
    maps = sample.rows.kernel_map
    n, p, like = len(maps.observed), len(maps.names), maps.like
    require_memory(
        p * n * n * namespace(like).finfo(like.dtype).bits // 8,
        f"all eigenvectors of {p} kernels over {n} rows",
        "use MixtureKDA, or fewer kernels or rows",
        like=like,
    )
    paths: Paths = {}

    def start(e: int, path: PredictivePath) -> Expert:
        paths[e] = path
        return choose_noise(path, float(model.noise), "unit")

    zero = model.missing == "zero"
    panel = ExpertPanel(maps, sample.codes, sample.classes, zero, start, progress)
    weights, outcomes = printed_em(panel, paths, model)
    problem = f"mixture likelihood of {p} experts, in-sample densities, nats per row"
    return Mixture(panel, weights, outcomes, problem)


def in_sample(path: PredictivePath, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances at the training rows themselves, (n, k) each.

    Eqs. 13-14 with amplitude 1 and one noise level (k,) per coordinate. The target of a
    row is part of its own mean: such densities grow without bound as the noise tends to
    zero.
    """
    noise = np.asarray(noise, dtype=np.float64)
    values = path.eigenvalues[:, None]
    smooth = values / (values + from_numpy(noise, values)[None, :])  # (n - 1, k)
    mean = to_numpy(path.vectors @ (path.rotated * smooth)).astype(np.float64)
    share = to_numpy(path.vectors**2 @ smooth).astype(np.float64)
    return path.intercept + mean, noise * (1.0 + share)


def printed_em(
    panel: ExpertPanel, paths: Paths, model: MixtureKDA
) -> tuple[np.ndarray, list[LocalSolution]]:
    """Zhao et al. (2009), Eqs. 13-14 and 17-20, class by class: weights (p, k).

    After each E-step the noise becomes ``sum_i gamma_il (t_i - m_il)^2 / sum_i
    gamma_il`` (Eq. 20). A step may decrease the likelihood; the noise is kept above
    the level of rounding. The noise levels found, and the in-sample densities at these
    levels, are stored in the panel.
    """
    p, k = panel.allowed.shape
    weights, noise = np.zeros((p, k)), panel.noise.copy()
    outcomes = [_one_class(panel, paths, model, c, weights, noise) for c in range(k)]
    floors = 0
    for e, path in paths.items():
        floors += int(np.sum(noise[e] <= path.smallest_alpha))
        relative = noise[e] / path.mean_eigenvalue
        panel.settle(e, choose_noise(path, relative, "unit"))
        mean, variance = in_sample(path, noise[e])
        panel.log_density[panel.rows[e], e] = _log_normal(path.target - mean, variance)
    end = f"; {floors} of {p * k} noise levels fell to the floor" if floors else ""
    warnings.warn(
        "this is the algorithm as printed, for study: its likelihood is unbounded and "
        f"its weights depend on where it stops{end}",
        KernelWarning,
        stacklevel=6,
    )
    return weights, outcomes


def _one_class(
    panel: ExpertPanel,
    paths: Paths,
    model: MixtureKDA,
    c: int,
    weights: np.ndarray,
    noise: np.ndarray,
) -> LocalSolution:
    """Run EM for class ``c``; writes its column of ``weights`` and ``noise`` (p, k)."""
    members = np.flatnonzero(panel.allowed[:, c])
    if not len(members):
        raise ValueError(f"no kernel has rows of class {panel.classes.tolist()[c]!r}")
    loop = LocalLoop[np.ndarray](model.tol, model.max_iter or EM_STEPS, None, CHANGE)
    last = loop.run(_steps(panel, paths, c, members, noise))
    weights[members, c] = last.point
    return LocalSolution(
        weights=weights[:, c],
        value=last.value,
        stationarity=last.stationarity,
        converged=loop.converged,
        status=loop.status,
        n_iter=loop.n_iter,
        trace=tuple(loop.trace.rows),
    )


def _steps(
    panel: ExpertPanel, paths: Paths, c: int, members: np.ndarray, noise: np.ndarray
) -> Iterator[Step[np.ndarray]]:
    """EM for the weights (m,) of the ``members``; changes their ``noise`` (p, k)."""
    seen = panel.observed[:, members]
    rows = np.any(seen, axis=1)  # the others have no effect on this class
    target = panel.target[:, c]
    mean, variance = np.zeros(seen.shape), np.ones(seen.shape)  # where rows are missing
    share = np.full(len(members), 1.0 / len(members))
    while True:
        for j, e in enumerate(members):
            inside = in_sample(paths[int(e)], noise[e])
            mean[panel.rows[e], j] = inside[0][:, c]
            variance[panel.rows[e], j] = inside[1][:, c]
        residual = target[:, None] - mean
        density = _log_normal(residual, variance)
        gamma = truncated_responsibilities(density, seen, share)
        likelihood = logsumexp(density, axis=1, b=np.where(seen, share, 0.0))
        value = -float(np.mean(likelihood[rows]))
        after = np.sum(gamma, axis=0) / np.sum(gamma)
        change, share = float(np.max(np.abs(after - share))), after
        total = np.maximum(np.sum(gamma, axis=0), np.finfo(float).tiny)
        fresh = np.sum(gamma * np.where(seen, residual**2, 0.0), axis=0) / total
        for j, e in enumerate(members):
            noise[e, c] = max(fresh[j], paths[int(e)].smallest_alpha)
        yield Step(share, value, stationarity=change)


def _log_normal(residual: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return -0.5 * (residual**2 / variance + np.log(2 * np.pi * variance))
