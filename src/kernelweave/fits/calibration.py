"""How certain scores of classes may be: the log loss of rows left out, and its minimum.

Scores of rows that a model has not seen tell how sharp its probabilities may be. With
offsets a, scores s, a sharpness b > 0 and a share e of exceptions, the probabilities of
the k classes of a row are::

    q_c = (1 - e) p_c + e / k,    p = softmax(a + b s)

and with targets t (n, k), which hold 1 - doubt for the class of a row and share the
doubt among its others, the log loss and its derivatives are::

    L(b, e) = -sum_i w_i sum_c t_ic log q_ic
    dL/db   = -sum_i w_i sum_c t_ic (1 - e) p_ic / q_ic (s_ic - sum_j p_ij s_ij)
    dL/de   =  sum_i w_i sum_c t_ic (p_ic - 1 / k_i) / q_ic

At e = 0 the loss is convex in b, and unbounded: a single row on the wrong side may
outweigh all others. With e > 0 no row costs more than log(k / e), but there may be
several minima.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, minimize

from kernelweave._array import DOUBLE_EPS, Array, namespace
from kernelweave.fits.design import RowDesign

#: Precision of the logarithm of a sharpness.
SHARP_ENOUGH = 1e-10
#: Points on a logarithmic grid between which minima of a bounded loss are sought.
SEARCH_POINTS = 13
#: At this sharpness times the largest difference between two scores of a row, the
#: scores no longer matter.
NO_MATTER = 1e-4
#: By how many nats exceptions must lower the log loss of all rows, to be allowed for.
#: That is a likelihood ratio of 150 for one parameter more. With less, about twice as
#: many of 38 data sets had a larger log loss on new rows as had a smaller one.
WORTH_EXCEPTIONS = 5.0
#: Nats by which a first guess of their share may fall short of that.
GUESS_MISSES = 3.0
#: The largest share of exceptions: with more, they would be the rule.
MOST_EXCEPTIONS = 0.5


@dataclass(frozen=True)
class Calibration:
    """How scores of classes become probabilities of rows that nobody has seen.

    Attributes
    ----------
    temperature : float
        Divides the scores.
    exceptions : float
        e, the share of rows whose class is taken to be anyone's guess.
    """

    temperature: float = 1.0
    exceptions: float = 0.0


class LeftOutLoss:
    """The log loss of rows left out, as a function of sharpness and exceptions.

    Parameters
    ----------
    offsets : ndarray of shape (n, k), or float
        a.
    scores : ndarray of shape (n, k)
        s; -inf for classes that are impossible.
    codes : ndarray of int of shape (n,)
        The class of each row, with a finite score.
    weights : ndarray of shape (n,)
        w.
    doubt : float, default=0.0
        The share of every row that belongs to the other possible classes.
    """

    def __init__(
        self,
        offsets: np.ndarray | float,
        scores: np.ndarray,
        codes: np.ndarray,
        weights: np.ndarray,
        doubt: float = 0.0,
    ) -> None:
        # classes come first inside: sums over few of them are then ten times as fast
        scores = np.ascontiguousarray(scores.T)  # (k, n)
        possible, rows = np.isfinite(scores), np.arange(len(codes))
        self.scores = np.where(possible, scores, 0.0)
        offsets = np.broadcast_to(offsets, scores.T.shape).T
        self.offsets = np.where(possible, offsets, -np.inf)
        self.weights = weights
        self.n_possible = np.sum(possible, axis=0)  # (n,)
        others = doubt / np.maximum(self.n_possible - 1, 1)
        self.targets = np.where(possible, others, 0.0)
        # of a single possible class nothing can be doubted
        self.targets[codes, rows] = 0.0
        self.targets[codes, rows] = 1.0 - np.sum(self.targets, axis=0)
        self.total_target = np.sum(self.targets * self.scores, axis=0)  # (n,)
        lowest = np.min(np.where(possible, scores, np.inf), axis=0)
        #: The largest difference between two scores of a row.
        self.range = float(np.max(np.max(scores, axis=0) - lowest, initial=0.0))

    def __call__(
        self, sharpness: float, exceptions: float = 0.0
    ) -> tuple[float, float, float]:
        """L, dL/db and dL/de; the last is not computed without exceptions."""
        logits = self.offsets + sharpness * self.scores
        logits -= np.max(logits, axis=0)
        shares = np.exp(logits)
        sums = np.sum(shares, axis=0)
        shares /= sums
        mean = np.sum(shares * self.scores, axis=0)  # (n,)
        if not exceptions:
            logs = np.where(self.targets > 0, logits - np.log(sums), 0.0)
            losses = -np.sum(self.targets * logs, axis=0)
            slopes = mean - self.total_target
            return float(self.weights @ losses), float(self.weights @ slopes), math.nan
        even = 1.0 / self.n_possible
        mixed = (1.0 - exceptions) * shares + exceptions * even
        losses = -np.sum(self.targets * np.log(mixed), axis=0)
        part = self.targets / mixed
        slopes = np.sum(part * shares * (mean - self.scores), axis=0)
        slopes *= 1.0 - exceptions
        rises = np.sum(part * (shares - even), axis=0)
        return (
            float(self.weights @ losses),
            float(self.weights @ slopes),
            float(self.weights @ rises),
        )

    def sharpest(self, low: float, high: float) -> float:
        """The sharpness between two bounds with the smallest loss, without exceptions.

        The loss is convex: its derivative has one root.
        """
        # Scores that are all equal say nothing, and their slope is rounding.
        largest = float(self.weights @ np.max(np.abs(self.scores), axis=0))
        rounding = DOUBLE_EPS * self.scores.shape[0] * largest
        if low >= high or self(high)[1] <= rounding:
            return high
        if self(low)[1] >= 0.0:
            return low
        return self._root(math.log(low), math.log(high), 0.0)

    def sharpest_with(self, exceptions: float, low: float, high: float) -> float:
        """The same for a fixed share of exceptions: the lowest of several minima."""
        if low >= high:
            return high
        grid = np.linspace(math.log(low), math.log(high), SEARCH_POINTS)
        values, slopes = np.array([self(math.exp(u), exceptions)[:2] for u in grid]).T
        best = int(np.argmin(values))
        if slopes[best] > 0 and best > 0 and slopes[best - 1] < 0:
            return self._root(grid[best - 1], grid[best], exceptions)
        if slopes[best] < 0 and best < SEARCH_POINTS - 1 and slopes[best + 1] > 0:
            return self._root(grid[best], grid[best + 1], exceptions)
        return float(np.exp(grid[best]))

    def _root(self, low: float, high: float, exceptions: float) -> float:
        """The sharpness at which the derivative is 0, between two logarithms."""
        root = brentq(
            lambda u: self(math.exp(u), exceptions)[1], low, high, xtol=SHARP_ENOUGH
        )
        return math.exp(root)

    def minimum(
        self, guess: tuple[float, float], low: float, high: float
    ) -> tuple[float, float, float]:
        """The smallest loss near a guess, its sharpness and its share of exceptions."""

        def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
            b, e = math.exp(x[0]), math.exp(x[1])
            value, by_b, by_e = self(b, e)
            return value, np.array([b * by_b, e * by_e])

        bounds = [
            (math.log(low), math.log(high)),
            (math.log(DOUBLE_EPS), math.log(MOST_EXCEPTIONS)),
        ]
        options = {"ftol": 1e-15, "gtol": 1e-9}
        least = minimize(
            loss, np.log(guess), (), "L-BFGS-B", True, bounds=bounds, options=options
        )
        return float(least.fun), math.exp(least.x[0]), math.exp(least.x[1])


def calibrate(
    scores: np.ndarray, codes: np.ndarray, design: RowDesign, coolest: float = 1.0
) -> Calibration:
    """The temperature of scores (n, k) of rows left out, and their exceptions, if any.

    It is computed as if one more row or group counted as half wrong (Krichevsky
    and Trofimov 1981): if all of few rows are right, a temperature of 1 may leave odds
    of e^100. Nor may one row of a hundred make the others uncertain: a share of
    exceptions is used where it lowers the loss by more than ``WORTH_EXCEPTIONS``.

    Parameters
    ----------
    scores : ndarray of shape (n, k)
        Scores; -inf for impossible classes.
    codes : ndarray of int of shape (n,)
        The class of each row.
    design : RowDesign
        Weights of the rows, and groups of rows that say the same: only the number of
        groups counts as evidence.
    coolest : float, default=1.0
        The smallest temperature.
    """
    n_groups = number_of_groups(design.units, design.each)
    doubt = 0.5 / (n_groups + 1.0)
    weights = design.each * (n_groups / np.sum(design.each))
    loss = LeftOutLoss(0.0, scores, codes, weights, doubt)
    if not loss.range > 0:
        return Calibration(max(1.0, coolest))
    high = 1.0 / coolest
    low = min(NO_MATTER / loss.range, high)
    plain = loss.sharpest(low, high)
    value = loss(plain)[0]
    if value <= WORTH_EXCEPTIONS:
        return Calibration(1.0 / plain)
    wrong = np.argmax(scores, axis=1) != codes
    share = max(float(weights @ wrong) / n_groups, doubt)
    share = min(share, 0.9 * MOST_EXCEPTIONS)
    guess = loss.sharpest_with(share, max(plain, low), high)
    if value - loss(guess, share)[0] <= WORTH_EXCEPTIONS - GUESS_MISSES:
        return Calibration(1.0 / plain)
    least, sharpness, exceptions = loss.minimum((guess, share), low, high)
    if value - least <= WORTH_EXCEPTIONS:
        return Calibration(1.0 / plain)
    return Calibration(1.0 / sharpness, exceptions)


def with_exceptions(scores: Array, exceptions: float) -> Array:
    """Logarithms of ``(1 - e) softmax(scores) + e / k``, (m, k), if e > 0."""
    if not exceptions:
        return scores
    xp = namespace(scores)
    shares = xp.exp(scores - xp.max(scores, axis=1, keepdims=True))
    shares = shares / xp.sum(shares, axis=1, keepdims=True)
    return xp.log((1.0 - exceptions) * shares + exceptions / scores.shape[1])


def number_of_groups(units: np.ndarray, weights: np.ndarray) -> float:
    """The effective number of groups of rows (n,): it is less if weights differ."""
    sums = np.bincount(units, weights)
    return float(np.sum(sums) ** 2 / np.sum(sums**2))
