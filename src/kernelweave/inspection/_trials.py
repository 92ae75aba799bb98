"""Held-out results of a model that is fitted again on some of its views."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing

from kernelweave._array import to_numpy, units_of
from kernelweave._text import counted, some
from kernelweave.exceptions import require_count
from kernelweave.fits.targets import StandardOutputs
from kernelweave.inspection._rows import (
    as_stack,
    by_class_of,
    design_for,
    fitted_model,
    has_products,
    last_step,
    log_losses,
    loss_name,
    model_and_rows,
    observed_views,
    probabilities,
    refittable,
    require_predictions,
    rows_by_class,
    standard_outputs,
    taken_by,
    targets_of,
    views_of,
    warn_of_weights,
    without_repeated_warnings,
    without_views,
)
from kernelweave.kernels.maps.kernel_map import NothingVariesError
from kernelweave.learn.estimates import mean_over_folds, ratio_of_means
from kernelweave.learn.folds import choose_splits
from kernelweave.models.shared.inputs import check_length
from kernelweave.models.shared.refits import of_classes
from kernelweave.views.caches import without_caches
from kernelweave.views.columns import is_precomputed

Views = frozenset[str]


class Trial(NamedTuple):
    """Results of a set of views on the rows left out, with one fit per fold.

    Attributes
    ----------
    score, loss : ndarray of shape (f,)
        On the rows left out.
    decisive : ndarray of shape (f,)
        The quantity to be minimised: the loss, or minus a given score.
    gap : ndarray of shape (f,)
        The certified gap; NaN without a certificate.
    gains, losses : ndarray of shape (m,)
        What each row left out adds to score and loss, fold by fold: the score of a fold
        is the mean gain of its rows, unless a scorer is given.
    """

    score: np.ndarray
    loss: np.ndarray
    decisive: np.ndarray
    gap: np.ndarray
    gains: np.ndarray
    losses: np.ndarray

    @classmethod
    def joined(cls, folds: Iterable[Trial]) -> Trial:
        """The results on several folds as one."""
        return cls(*map(np.concatenate, zip(*folds, strict=True)))


class Trials:
    """Held-out results for sets of views, each computed once.

    Predictions are numbers (m, q): the probabilities of all q classes (of a model
    without probabilities, 1 for the class it predicts), or q outputs.

    Parameters
    ----------
    estimator, X, y, cv, scoring, n_jobs, random_state, groups
        As in :func:`view_ablation`.

    Attributes
    ----------
    names : list of str
        All views.
    loss_name : str
        What the loss is.
    is_rate : bool
        Whether it is an error rate.
    design : RowDesign
        Which rows are held out together.
    each : ndarray of shape (n,)
        How much each row counts, 1 on average: as the model weights its class. Rows of
        a class that no fold judges count 0.
    tested : ndarray of int
        The rows that are judged.
    judged : ndarray of bool of shape (q,)
        Which classes have rows that are judged. The loss is that of probabilities given
        that a row is of one of these classes: otherwise it would pay to know that the
        others never occur.
    codes : ndarray of int of shape (n,)
        The classes of the rows, as numbers; 0 for a regression.
    unit : ndarray of shape (1,) or (q,)
        That in which the outputs of a regression are judged.
    folds : list of (train, test)
        Row numbers.
    remarks : list of str
        Which rows are not judged.
    known : dict of Views to list of Trial
        The results of every set that was run, on each fold.
    """

    def __init__(
        self,
        estimator: Any,
        X: Any,
        y: Any,
        cv: Any,
        scoring: Any,
        n_jobs: int | None,
        random_state: Any,
        groups: Any = None,
    ) -> None:
        self.model = model = fitted_model(estimator)
        self.template = refittable(estimator)
        self.precomputed = is_precomputed(model.views)
        self.every = views_of(model)[0]
        # Products are not views: they come and go with the views they are made of.
        self.names = [view for view in self.every if not has_products(model, view)]
        _check_model(model, self.names)
        check_length(X, y, "view_ablation")
        self.X = to_numpy(as_stack(X, model)) if self.precomputed else X
        self.y = targets_of(y, "view_ablation")
        self.classes, self.codes = None, np.zeros(len(self.y), dtype=int)
        if is_classifier(model):
            self.classes, self.codes = np.unique(self.y, return_inverse=True)
        self.truth = self._as_numbers(self.y)
        self.observed = self._observed(estimator, X)
        self.scoring = scoring
        if scoring is not None and self.observed is not None:
            raise ValueError(
                "scoring must be None if rows lack views: rows without any view of a "
                "set are predicted without the model, which a scorer cannot do"
            )
        n, does = len(self.y), "holds out groups"
        self.design = design_for(model, groups, n, "view_ablation", does)
        warn_of_weights(model, "view_ablation")
        self.remarks: list[str] = []
        self.folds = self._folds(cv, random_state)
        self.tested = np.unique(np.concatenate([test for _, test in self.folds]))
        self.judged = np.isin(np.arange(self.truth.shape[1]), self.codes[self.tested])
        if self.classes is not None and np.sum(self.judged) < 2 and scoring is None:
            only = str(self.classes[self.judged][0])
            raise ValueError(
                f"view_ablation: only rows of the class {only!r} are held out by a "
                "fold that learns from rows of their class, so no view can be useful. "
                "At least two classes need two rows each, in different groups and folds"
            )
        self.each = self._weights(np.arange(len(self.y)))
        self.each /= np.mean(self.each[self.each > 0])
        self.n_jobs = n_jobs
        self.known: dict[Views, list[Trial]] = {}
        self.loss_name = loss_name(model, self.truth.shape[1])
        self.is_rate = self.loss_name == "error rate"
        if self.classes is not None:
            self.loss_name = by_class_of(model, self.loss_name)
        if self.classes is None:
            why = "no view can be useful"
            outputs = standard_outputs(self.truth, "view_ablation", why)
            self._set_unit(outputs)
            self.spread = self._spread(outputs)

    def _observed(self, estimator: Any, X: Any) -> np.ndarray | None:
        """Which rows of X have which view, (n, v), if any lacks one.

        They need not be those of the fit, nor in their order.
        """
        if not self.precomputed:
            return observed_views(*model_and_rows(estimator, X))
        has = ~np.isnan(np.diagonal(self.X)).T  # with each of the kernels
        return None if np.all(has) else has

    def _folds(self, cv: Any, random_state: Any) -> list[tuple[np.ndarray, np.ndarray]]:
        classify = self.classes is not None
        if isinstance(cv, int | np.integer):
            require_count(2, cv=cv)
        else:
            cv = check_cv(cv, self.y, classifier=classify)
        with warnings.catch_warnings():  # the folds are checked below
            warnings.filterwarnings("ignore", "The groups parameter is ignored")
            splits = choose_splits(
                cv,
                self.codes if classify else self.y,
                self.design,
                classify,
                random_state,
                every_class=self.scoring is not None,
            )
        # large groups may leave some empty
        folds = [(train, test) for train, test in splits if len(test)]
        if self.design.groups is not None:
            folds = self._apart(folds)
        if classify:
            folds = self._of_known_classes(folds)
        if len(folds) < 2:
            raise ValueError(f"view_ablation needs at least 2 folds, got {len(folds)}")
        return folds

    def _weights(self, rows: np.ndarray) -> np.ndarray:
        """How much rows (m,) count, as the model weights classes in a fit to them."""
        if self.classes is None:
            return np.ones(len(rows))
        own = of_classes(self.model, self.classes, np.unique(self.codes[rows]))
        each = rows_by_class(clone(self.model).set_params(**own), self.y[rows])
        return np.where(self.judged[self.codes[rows]], each, 0)

    def _of_known_classes(
        self, folds: list[tuple[np.ndarray, np.ndarray]]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """The folds without the rows whose classes their models cannot know."""
        known = [np.isin(self.y[test], self.y[train]) for train, test in folds]
        pairs = list(zip(folds, known, strict=True))
        unknown = np.concatenate([self.y[test[~own]] for (_, test), own in pairs])
        if len(unknown):
            classes = some(repr(str(label)) for label in np.unique(unknown))
            self.remarks.append(
                f"Not judged: {counted(len(unknown), 'row')} whose class is absent "
                f"from the training rows of the fold ({classes})."
            )
        return [(train, test[own]) for (train, test), own in pairs if np.any(own)]

    def _apart(
        self, folds: list[tuple[np.ndarray, np.ndarray]]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """The folds, learned without rows of the groups that are held out.

        Such rows may be those that no fold holds out; others are refused.
        """
        units, found = self.design.units, []
        tested = np.isin(np.arange(len(units)), np.concatenate([t for _, t in folds]))
        for number, (train, test) in enumerate(folds):
            known = np.isin(units[train], units[test])
            if np.any(known & tested[train]):
                raise ValueError(
                    f"view_ablation: fold {number} of cv, counted from 0, holds out "
                    "only some rows of a group. Pass a cv that keeps groups together, "
                    "such as GroupKFold(), or a number of folds"
                )
            found.append((train[~known], test))
        return found

    def _set_unit(self, outputs: StandardOutputs) -> None:
        """Outputs in units of their own count equally; one output is taken as it is.

        Its squares must not overflow, though.
        """
        if self.truth.shape[1] > 1:
            self.unit = outputs.unit
            return
        self.unit = units_of(
            np.max(np.abs(self.truth - np.mean(self.truth)), axis=0), 64
        )
        if self.unit[0] != 1.0:
            self.loss_name += f" of y / {self.unit[0]:.3g}"

    def _spread(self, outputs: StandardOutputs) -> np.ndarray:
        """Mean squared error of the training means over all folds, (q,).

        NaN for an output that is constant up to rounding.
        """
        truth = self.truth / self.unit
        own = [truth[test] - truth[train].mean(axis=0) for train, test in self.folds]
        spread = np.mean([np.mean(rest**2, axis=0) for rest in own], axis=0)
        return np.where(outputs.varies & (spread > 0), spread, np.nan)

    def run(self, sets: Iterable[Views]) -> None:
        """Fit all sets that are not yet known, on every fold."""
        new = [s for s in dict.fromkeys(sets) if s not in self.known]
        found = Parallel(n_jobs=self.n_jobs)(
            delayed(self._trial)(views, *fold) for views in new for fold in self.folds
        )
        n_folds = len(self.folds)
        for i, views in enumerate(new):
            self.known[views] = found[i * n_folds : (i + 1) * n_folds]

    def result(self, views: Views) -> Trial:
        """The results of a set that was run, on all folds."""
        return Trial.joined(self.known[views])

    def rise(self, trial: Trial, other: Trial) -> tuple[float, float]:
        """How much larger the loss of one result is than another's, and its error.

        Both predict the same rows, of which some are hard for both: the error is that
        of the differences row by row, or group by group.
        """
        return self._over_rows(trial.losses - other.losses)

    def fall(self, trial: Trial, other: Trial) -> tuple[float, float]:
        """How much lower the score is, likewise; of a scorer, fold by fold."""
        if self.scoring is not None:
            return mean_over_folds(other.score - trial.score)
        return self._over_rows(other.gains - trial.gains)

    def _over_rows(self, differences: np.ndarray) -> tuple[float, float]:
        """The mean over folds of their mean differences (m,), and its error."""
        rows = np.concatenate([test for _, test in self.folds])
        sizes = [len(test) for _, test in self.folds]
        unit = float(units_of(np.max(np.abs(differences)), 64))  # squares may overflow
        mean, error = ratio_of_means(
            differences[:, None] / unit,
            np.ones((len(rows), 1)),
            1.0 / np.repeat(sizes, sizes),
            self.design.units[rows],
        )
        return mean * unit, error * unit

    def baseline(self) -> np.ndarray:
        """The loss of predictions without any view, (f,); NaN with a scorer."""
        if self.scoring is not None:
            return np.full(len(self.folds), np.nan)
        found = []
        for train, test in self.folds:
            # A class may lead in training only because the fold holds more of another.
            rows = np.arange(len(self.y)) if self.is_rate else train
            _, losses = self._judge(test, self._without_views(rows, len(test)))
            found.append(np.mean(losses))
        return np.array(found)

    def _weights_of(self, views: Views) -> np.ndarray:
        """The weights, given to the model, of the kernels of some views."""
        view_names = self.model.kernel_map_.view_names
        among = [
            name in views or (len(views) > 1 and has_products(self.model, name))
            for name in view_names
        ]
        return to_numpy(self.model.kernel_weights_)[among]

    @without_repeated_warnings()
    def _trial(self, views: Views, train: np.ndarray, test: np.ndarray) -> Trial:
        """Fit on the rows ``train`` with some views, and judge the rows ``test``."""
        own, judged = train, test
        wanted = [name in views for name in self.every]
        if self.observed is not None:
            has = np.sum(self.observed[:, wanted], axis=1) > 0
            own, judged = train[has[train]], test[has[test]]
        model = without_caches(self.template)
        final = last_step(model)
        chosen: Any = "precomputed"  # a list of names would be too long for the stack
        if not self.precomputed:
            chosen = [view for view in final.views if view[0] in views]
        final.set_params(views=chosen)
        if getattr(final, "kernel_weights", None) is not None:
            final.set_params(kernel_weights=self._weights_of(views))
        if self.classes is not None:
            known = np.unique(self.codes[own])
            final.set_params(**of_classes(final, self.classes, known))
        try:
            self._fit(model, self._rows(own, own, wanted), own)
        except NothingVariesError:
            model = self._none(own)
        new = self._rows(judged, own, wanted)
        predicted = self._without_views(train, len(test))
        if len(judged):
            predicted[np.isin(test, judged)] = self._predicted(model, new)
        gains, losses = self._judge(test, predicted)
        score, loss = float(np.mean(gains)), float(np.mean(losses))
        decisive = loss
        if self.scoring is not None:
            scorer = check_scoring(model, scoring=self.scoring)
            score = scorer(model, new, self.y[judged])
            if np.isnan(score):
                raise ValueError(
                    f"view_ablation: the score {self.scoring!r} is undefined on a fold "
                    f"of {counted(len(test), 'row')}; pass a cv with larger folds"
                )
            decisive = -score
        certificate = getattr(final, "certificate_", None)
        gap = np.nan if certificate is None else certificate.gap
        return Trial(
            score=np.array([score]),
            loss=np.array([loss]),
            decisive=np.array([decisive]),
            gap=np.array([gap]),
            gains=gains,
            losses=losses,
        )

    def _fit(self, model: Any, X: Any, rows: np.ndarray) -> None:
        """Fit to some rows, and to their groups if the model takes any."""
        units = self.design.units[rows]
        alike = self.design.groups is None or np.all(units == units[0])
        given = taken_by(model, {"groups": None if alike else units})
        with config_context(enable_metadata_routing=False):  # step__groups
            model.fit(X, self.y[rows], **given)

    def _rows(self, rows: np.ndarray, train: np.ndarray, wanted: list[bool]) -> Any:
        if self.precomputed:
            return self.X[np.ix_(rows, train, np.array(wanted))]
        return _safe_indexing(self.X, rows)

    def _as_numbers(self, y: np.ndarray) -> np.ndarray:
        """Targets as numbers (m, q)."""
        if self.classes is None:
            return y.astype(np.float64).reshape(len(y), -1)
        return (y[:, None] == self.classes).astype(np.float64)

    def _predicted(self, model: Any, new: Any) -> np.ndarray:
        if self.classes is not None and not self.is_rate:
            return probabilities(model, new, self.classes)
        return self._as_numbers(to_numpy(model.predict(new)))

    def _without_views(self, train: np.ndarray, m: int) -> np.ndarray:
        """Predictions for m rows from the training targets alone."""
        return self._predicted(self._none(train), np.zeros((m, 1)))

    def _none(self, train: np.ndarray) -> Any:
        """A model of the training targets alone."""
        none, rows = without_views(self.classes is not None), np.zeros((len(train), 1))
        return none.fit(rows, self.y[train], sample_weight=self._weights(train))

    def _judge(
        self, test: np.ndarray, predicted: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The gains and losses (m,) of predictions for the rows ``test``."""
        if self.classes is None:
            truth, predicted = self.truth[test] / self.unit, predicted / self.unit
            errors = (truth - predicted) ** 2
            # The variance of all folds together: a single row has none to explain.
            gains = np.nanmean(1.0 - errors / self.spread, axis=1)
            return gains, np.mean(errors, axis=1)
        codes = self.codes[test]
        # Not the weighted mean of the fold, which may lack the class that counts most.
        each, right = self.each[test], np.argmax(predicted, axis=1) == codes
        given = np.where(self.judged, predicted, 0.0)
        losses = ~right if self.is_rate else log_losses(given, codes)
        return each * right, each * losses


def _check_model(model: Any, names: list[str]) -> None:
    require_predictions(model, "view_ablation")
    if len(names) < 2:
        raise ValueError(
            f"view_ablation compares views, and the {type(model).__name__} has only "
            f"one, {names[0]!r}; give it several in the parameter views"
        )
