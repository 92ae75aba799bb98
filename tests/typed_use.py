"""What a type checker says about scripts: "make lint" runs mypy on this file.

A mistake carries a comment that ignores its error, and mypy reports comments that
ignore nothing. So the lint fails if a mistake goes unnoticed, and also if a documented
use is refused.
"""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np

from kernelweave import (
    Alignment,
    Certificate,
    Fisher,
    KernelAlignment,
    KernelFDA,
    LpBall,
    Margin,
    MixtureKDA,
    MultipleKernelFDA,
    MultipleKernelRidge,
    MultipleKernelSVC,
    ProbabilisticKDA,
    SignedSum,
    SubspaceKernel,
    SubspaceKernelSVC,
    TransductiveKernelSVC,
)
from kernelweave.criteria import BlockFisher
from kernelweave.kernels import RBF
from kernelweave.protocols import (
    BallSet,
    CosineCriterion,
    CutSet,
    ExpansionCriterion,
    SaddleCriterion,
    ScoredCriterion,
)


def uses(X: Any, y: Any) -> None:
    """Everything here is right."""
    views = [("a", "auto", slice(0, 2)), ("b", RBF(gamma=0.1), ["age", "dose"])]
    model = MultipleKernelFDA(views, norm=1, alpha="learn", features="nystroem")
    assert_type(model.fit(X, y), MultipleKernelFDA)
    assert_type(model.partial_fit(X, y), MultipleKernelFDA)
    assert_type(model.set_params(norm=2), MultipleKernelFDA)
    assert_type(model.certificate_, Certificate)
    assert_type(model.view_weights_, dict[str, float])
    assert_type(model.score(X, y), float)
    model.set_fit_request(sample_weight=True).fit(X, y).predict_proba(X)
    assert_type(model.predict(X), np.ndarray)
    assert_type(model.predict_log_proba(X), np.ndarray)
    model.fit_transform(X, y)
    model.set_output(transform="pandas").get_feature_names_out()
    _ = model.classes_, model.n_features_in_, model.feature_names_in_, model.alpha_
    _ = model.kernel_weights_, model.kernel_names_, model.cv_score_, model.loo_score_
    ridge = MultipleKernelRidge(norm="loo").fit(X, y)
    _ = ridge.intercept_, ridge.loo_errors_, ridge.predict(X)
    svc = MultipleKernelSVC(margin="l2", C="learn").fit(X, y)
    _ = svc.support_, svc.C_, svc.decision_function(X)
    assert_type(KernelFDA(alpha="loo").fit(X, y), KernelFDA)
    assert_type(TransductiveKernelSVC().fit(X, y), TransductiveKernelSVC)
    assert_type(KernelAlignment(output="features").fit(X, y), KernelAlignment)
    assert_type(SubspaceKernel(method="hsic").fit(X, y), SubspaceKernel)
    assert_type(SubspaceKernelSVC(alpha="auto").fit(X, y), SubspaceKernelSVC)
    assert_type(ProbabilisticKDA(noise="ml").fit(X, y), ProbabilisticKDA)
    assert_type(MixtureKDA(weights="stacking").fit(X, y), MixtureKDA)
    mean, variance = ProbabilisticKDA().fit(X, y).predict_distribution(X)
    _ = mean - variance
    MultipleKernelFDA(solver="working_set")


def mistakes(X: Any, y: Any) -> None:
    """Everything here is wrong."""
    MultipleKernelFDA(norm="l1")  # type: ignore[arg-type]
    MultipleKernelFDA(missing="drop")  # type: ignore[arg-type]
    MultipleKernelFDA(solver="fast")  # type: ignore[arg-type]
    MultipleKernelFDA(norms=1)  # type: ignore[call-arg]
    MultipleKernelRidge(features="rff")  # type: ignore[arg-type]
    MultipleKernelSVC(margin="soft")  # type: ignore[arg-type]
    model = MultipleKernelFDA()
    model.predct(X)  # type: ignore[attr-defined]
    model.fit(X, y).predct(X)  # type: ignore[attr-defined]
    model.fit(X, y, weights=1)  # type: ignore[call-arg]
    model.predict(X, y)  # type: ignore[call-arg]
    _ = model.fit(X, y).certificate_.gapp  # type: ignore[attr-defined]


def offers(
    scored: Fisher, expanding: BlockFisher, saddle: Margin, cosines: Alignment
) -> tuple[ScoredCriterion, ExpansionCriterion, SaddleCriterion, CosineCriterion]:
    """Criteria have all members of what they offer."""
    return scored, expanding, saddle, cosines


def set_offers(ball: LpBall, cuts: SignedSum) -> tuple[BallSet, CutSet]:
    """So do weight sets."""
    return ball, cuts
