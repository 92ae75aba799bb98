"""Held-out results of a model that is fitted again on some of its views."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone, is_classifier
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import accuracy_score, check_scoring, r2_score
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing

from kernelweave._array import to_numpy
from kernelweave.inspection._rows import (
    as_stack,
    has_products,
    log_losses,
    loss_name,
    observed_views,
    probabilities,
    refittable,
    views_of,
)
from kernelweave.inspection.weights import fitted_model, last_step
from kernelweave.models.shared.learner import shuffled_folds
from kernelweave.views.columns import is_precomputed

Views = frozenset[str]


@dataclass(frozen=True)
class Trial:
    """One fit: its score and loss on the rows left out, and the certified gap."""

    score: float
    loss: float
    gap: float | None


class Trials:
    """Held-out results for sets of views, each computed once.

    Parameters
    ----------
    estimator, X, y, cv, scoring, n_jobs, random_state
        As in :func:`view_ablation`.

    Attributes
    ----------
    names : list of str
        All views.
    loss_name : str
        What the loss is.
    folds : list of (train, test)
        Row numbers.
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
    ) -> None:
        model = fitted_model(estimator)
        self.owner = type(model).__name__
        self.template = refittable(estimator)
        self.precomputed = is_precomputed(model.views)
        # Products belong to no view: they come and go with the views they are made of.
        self.names = [v for v in views_of(model)[0] if not has_products(model, v)]
        self._check_model(model)
        self.classifier = bool(is_classifier(model))
        self.X, self.y = X, to_numpy(y)
        if self.precomputed:
            self.X = to_numpy(as_stack(X, self.names))
        self.observed = self._observed(model)
        self.scoring = scoring
        if scoring is not None and self.observed is not None:
            raise ValueError(
                "scoring must be None if rows lack views: rows without any view of a "
                "set are predicted without the model, which a scorer cannot do"
            )
        self.folds = self._folds(cv, random_state)
        self.n_jobs = n_jobs
        self.known: dict[Views, list[Trial]] = {}
        self.loss_name = loss_name(model)

    def _check_model(self, model: Any) -> None:
        if not hasattr(model, "predict"):
            raise TypeError(
                f"view_ablation needs a model that predicts; {self.owner} only "
                "transforms. Judge the classifier that follows it instead"
            )
        if len(self.names) < 2:
            raise ValueError(
                f"view_ablation compares views, and the {self.owner} has only one, "
                f"{self.names[0]!r}; give it several in the parameter views"
            )

    def _observed(self, model: Any) -> np.ndarray | None:
        """Which rows have which view, (n, v), if any row lacks one."""
        seen = observed_views(model)
        if seen is None:
            return None
        if len(seen) != len(self.y):
            raise ValueError(
                f"view_ablation needs the rows that the {self.owner} was fitted on if "
                f"some lack a view: it was fitted on {len(seen)}, and y has "
                f"{len(self.y)}"
            )
        every = views_of(model)[0]
        return seen[:, [every.index(name) for name in self.names]]

    def _folds(self, cv: Any, random_state: Any) -> list[tuple[np.ndarray, np.ndarray]]:
        if isinstance(cv, int | np.integer):
            cv = shuffled_folds(int(cv), self.classifier, False, random_state)
        else:
            cv = check_cv(cv, self.y, classifier=self.classifier)
        folds = list(cv.split(np.zeros(len(self.y)), self.y))
        if len(folds) < 2:
            raise ValueError(f"view_ablation needs at least 2 folds, got {len(folds)}")
        return folds

    def run(self, sets: Iterable[Views]) -> None:
        """Fit all sets that are not yet known, on every fold."""
        new = [s for s in dict.fromkeys(sets) if s not in self.known]
        tasks = [(views, fold) for views in new for fold in self.folds]
        found = Parallel(n_jobs=self.n_jobs)(
            delayed(self._trial)(views, *fold) for views, fold in tasks
        )
        for views, trial in zip((views for views, _ in tasks), found, strict=True):
            self.known.setdefault(views, []).append(trial)

    def scores(self, views: Views) -> np.ndarray:
        """The score on each fold, (f,)."""
        self.run([views])
        return np.array([trial.score for trial in self.known[views]])

    def losses(self, views: Views) -> np.ndarray:
        """The loss on each fold, (f,)."""
        self.run([views])
        return np.array([trial.loss for trial in self.known[views]])

    def decisive(self, views: Views) -> np.ndarray:
        """What is to be small on each fold, (f,): the loss, or minus a given score."""
        return self.losses(views) if self.scoring is None else -self.scores(views)

    def baseline(self) -> np.ndarray:
        """What is to be small for predictions without any view, (f,); else NaN."""
        if self.scoring is not None:
            return np.full(len(self.folds), np.nan)
        return np.array(
            [
                self._judge(test, self._without_views(train, len(test)))[1]
                for train, test in self.folds
            ]
        )

    def _trial(self, views: Views, train: np.ndarray, test: np.ndarray) -> Trial:
        """Fit on the rows ``train`` with some views, and judge the rows ``test``."""
        own, judged = train, test
        if self.observed is not None:
            wanted = [name in views for name in self.names]
            has = np.sum(self.observed[:, wanted], axis=1) > 0
            own, judged = train[has[train]], test[has[test]]
        model = clone(self.template)
        final = last_step(model)
        keep = [i for i, name in enumerate(self.names) if name in views]
        chosen: Any = "precomputed"  # without names, of which there would be too many
        if not self.precomputed:
            chosen = [view for view in final.views if view[0] in views]
        final.set_params(views=chosen)
        model.fit(self._rows(own, own, keep), self.y[own])
        certificate = getattr(final, "certificate_", None)
        gap = None if certificate is None else float(certificate.gap)
        new = self._rows(judged, own, keep)
        predicted = self._without_views(train, len(test))
        predicted[np.isin(test, judged)] = self._predicted(model, new)
        score, loss = self._judge(test, predicted)
        if self.scoring is not None:
            score = check_scoring(model, scoring=self.scoring)(
                model, new, self.y[judged]
            )
        return Trial(float(score), loss, gap)

    def _rows(self, rows: np.ndarray, train: np.ndarray, keep: list[int]) -> Any:
        if self.precomputed:
            return self.X[np.ix_(rows, train, np.array(keep))]
        return _safe_indexing(self.X, rows)

    def _predicted(self, model: Any, new: Any) -> np.ndarray:
        """Probabilities of all classes (m, k), class codes (m,), or outputs (m, t)."""
        if self.loss_name == "log loss":
            return probabilities(model, new, np.unique(self.y))
        found = to_numpy(model.predict(new))
        if self.classifier:
            return np.searchsorted(np.unique(self.y), found)
        return found.astype(np.float64).reshape(len(found), -1)

    def _without_views(self, train: np.ndarray, m: int) -> np.ndarray:
        """Predictions for m rows from the training targets alone."""
        none = DummyClassifier() if self.classifier else DummyRegressor()
        none.fit(np.zeros((len(train), 1)), self.y[train])
        return self._predicted(none, np.zeros((m, 1)))

    def _judge(self, test: np.ndarray, predicted: np.ndarray) -> tuple[float, float]:
        """Score and loss of predictions for the rows ``test``."""
        truth = self.y[test]
        if not self.classifier:
            truth = truth.astype(np.float64).reshape(len(test), -1)
            square = float(np.mean((truth - predicted) ** 2))
            return float(r2_score(truth, predicted)), square
        classes = np.unique(self.y)
        if self.loss_name == "error rate":
            right = float(np.mean(classes[predicted] == truth))
            return right, 1.0 - right
        labels = classes[np.argmax(predicted, axis=1)]
        codes = np.searchsorted(classes, truth)
        loss = float(np.mean(log_losses(predicted, codes)))
        return float(accuracy_score(truth, labels)), loss
