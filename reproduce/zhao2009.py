"""Zhao, Yu, Ye, Liu (2009): mixtures of probabilistic kernel discriminants.

Protocol (Section 5): nine microarrays, 15 kernels each, one per biological pathway; ten
random partitions; accuracy of MPKDA with prior (Eq. 23) and posterior (Eq. 26)
projections, against discriminant analysis and support vector machines that learn a sum
of kernels. Figure 1 removes 5 to 25 percent of the training rows from each kernel.

What the paper leaves open, what is not available, and what is done here
(``docs/papers/zhao2009.md`` has more):

* Of the nine data sets only TOX is available, without the names of its genes: its 15
  kernels are clusters of genes. Four other microarrays with named genes replace the
  rest, all with the same 15 KEGG pathways that are known to matter in cancer. So no
  cell of Table 2 can be compared, but the claims about it can be tested.
* Gaussian kernels whose squared width is the median squared distance; genes have mean
  zero and variance one; half of each class is used for training.
* MPKDA has maximum-likelihood weights from leave-one-out densities. The likelihood of
  the algorithm as printed has no maximum; it has a separate column, stopped after 100
  steps.
* KDA_QCQP learns lambda together with the weights, as Ye et al. (2007) do; a separate
  column uses the lambda with the smallest leave-one-out error.
* C of the support vector machines is chosen from 1, 10 and 100 by three-fold
  cross-validation.
* Figure 1: rows that a kernel lacks are rows of zeros in its matrix, before it is
  centred, which puts them at the origin of its feature space (Section 4.5). Separate
  columns show zeros filled in after centring, which put the rows at the mean instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.preprocessing import scale as standard
from sklearn.utils import Bunch

from kernelweave.datasets import fetch_expression
from kernelweave.datasets.expression import UnknownTargetError
from kernelweave.exceptions import MissingDataError
from kernelweave.kernels import RBF
from kernelweave.models import (
    KernelFDA,
    MixtureKDA,
    MultipleKernelFDA,
    MultipleKernelSVC,
    ProbabilisticKDA,
)
from reproduce.experiment import (
    Columns,
    Finding,
    Split,
    choose_C,
    partition,
    read_paper,
)
from reproduce.figures import curves, legend_below, subplots
from reproduce.reference.printed_mixture import (
    fit_printed_mixture,
    fit_printed_posterior,
)
from reproduce.results import Estimate, Results

N_GROUPS = 15
#: Number of genes of TOX, those with the largest variance, that are clustered.
CLUSTERED = 1500
FUSION_C = (1.0, 10.0, 100.0)
#: Percentages of training rows that each kernel lacks.
LACKING = (0, 5, 10, 15, 20, 25)
PRI, POS, KDA, SVM = "MPKDA-Pri", "MPKDA-Pos", "KDA_QCQP", "SVM_SILP"
BEST, AVERAGE, PRIOR = "Max Single", "Ave Single", "Pri with a prior"
KDA_LOO = "KDA, leave-one-out lambda"
KDA_MEAN, SVM_MEAN = "KDA, zeros after centring", "SVM, zeros after centring"
PRINTED_WEIGHTS = "Pos, printed weights"
EQUAL_WEIGHTS = "Pri, equal weights"
MAPK = "mapk_signaling_pathway"
#: The groups of genes, in the order of the kernels.
PATHWAYS = (
    "apoptosis",
    "b_cell_receptor_signaling_pathway",
    "cell_cycle",
    "chronic_myeloid_leukemia",
    "erbb_signaling_pathway",
    "focal_adhesion",
    "jak_stat_signaling_pathway",
    MAPK,
    "mtor_signaling_pathway",
    "p53_signaling_pathway",
    "pathways_in_cancer",
    "t_cell_receptor_signaling_pathway",
    "tgf_beta_signaling_pathway",
    "vegf_signaling_pathway",
    "wnt_signaling_pathway",
)
#: Kernels with a weight above this count as selected.
SELECTED_WEIGHT = 1e-3
#: Accuracies closer than this are called similar.
SIMILAR = 0.02
#: The data sets of Figure 1.
PANELS = ("Prostate", "ALL, fusion")


# ------------------------------------------------------------------- data, splits


#: Gene expression (n, d), scaled to mean zero and variance one, classes (n,), and the
#: columns of each group of genes.
Microarray = tuple[np.ndarray, np.ndarray, Mapping[str, slice]]


@dataclass(frozen=True)
class Halves(Split):
    """A split whose columns are in groups.

    Attributes
    ----------
    groups : dict
        Columns of each group.
    """

    groups: Mapping[str, slice]

    def views(self) -> list[tuple[str, RBF, slice]]:
        """One Gaussian kernel per group."""
        return [(name, RBF(), columns) for name, columns in self.groups.items()]

    @functools.cached_property
    def zero_filled(self) -> tuple[np.ndarray, np.ndarray]:
        """Kernels (m, m, p) and (t, m, p), zero in rows and columns that lack a group.

        Before centring, a row of zeros is the origin of the feature space.
        """
        m = len(self.train)
        inner = np.zeros((m, m, len(self.groups)))
        cross = np.zeros((len(self.test), m, len(self.groups)))
        for j, columns in enumerate(self.groups.values()):
            rows = np.flatnonzero(~np.isnan(self.train[:, columns]).any(axis=1))
            own = self.train[rows, columns]
            kernel = RBF().resolve(own)
            inner[rows[:, None], rows, j] = kernel(own, own)
            cross[:, rows, j] = kernel(self.test[:, columns], own)
        return inner, cross


@functools.cache
def fetch(name: str, gene_sets: str | None, **target: str) -> Bunch:
    """A data set as published."""
    return fetch_expression(
        name, gene_sets=gene_sets, smallest=1, as_frame=False, **target
    )


@functools.cache
def pathways(name: str) -> Microarray:
    """A data set with one group per pathway, in the order of their names."""
    bunch = (series if name in GEO else fetch)(name, "kegg_msigdb")
    where = {view: columns for view, _, columns in bunch.views}
    blocks = [bunch.data[:, where[view]] for view in PATHWAYS]
    groups = columns_of(PATHWAYS, [block.shape[1] for block in blocks])
    return standard(np.hstack(blocks)), bunch.target, groups


@functools.cache
def clusters() -> Microarray:
    """TOX, whose genes have no names, in 15 clusters of genes that vary together."""
    bunch = fetch("tox", None)
    most = np.argsort(np.var(bunch.data, axis=0))[-CLUSTERED:]
    values = standard(bunch.data[:, np.sort(most)])
    member = KMeans(N_GROUPS, n_init=3, random_state=0).fit_predict(values.T)
    order = np.argsort(member, kind="stable")
    names = [f"cluster {i + 1}" for i in range(N_GROUPS)]
    groups = columns_of(names, np.bincount(member, minlength=N_GROUPS).tolist())
    return values[:, order], bunch.target, groups


def columns_of(names: Sequence[str], sizes: Sequence[int]) -> dict[str, slice]:
    """Adjacent groups of columns with these sizes."""
    ends = np.cumsum(sizes).tolist()
    starts = [0, *ends[:-1]]
    return {n: slice(a, b) for n, a, b in zip(names, starts, ends, strict=True)}


def series(name: str, gene_sets: str | None) -> Bunch:
    """A data set of the paper, if its file is in the folder.

    The classes are the first kind of subsets that has the number of classes in the
    paper's Table 1.
    """
    printed = PAPER.select("table1")[0].published
    number = printed[name, "data"]["classes"].value
    for kind in SUBSETS:
        try:
            bunch = fetch(GEO[name], gene_sets, target=kind)
        except MissingDataError as error:
            raise MissingDataError(
                f"{error}; the paper's choice of genes and of 15 pathways is not "
                "published, so a row of ours has the pathways of the other sets"
            ) from None
        except UnknownTargetError:
            continue
        if len(bunch.target_names) == number:
            return bunch
    raise MissingDataError(
        f"{GEO[name]}.soft.gz has no subsets of {number:.0f} classes among the kinds "
        f"{', '.join(SUBSETS)}"
    )


halves = functools.partial(partition, share=0.5, kind=Halves, stratify=True)


def holes(data: Sequence[Any], rng: np.random.Generator) -> Halves:
    """Halves, with a share of the training rows removed from each group.

    Rows that lack a group at some percentage also lack it at every higher one. A row
    never loses its last group; the next row drawn loses the group instead.
    """
    *array, percent = data
    split: Halves = halves(array, rng)
    train = split.train.copy()
    count = round(percent / 100 * len(train))
    left = np.full(len(train), len(split.groups))
    for columns in split.groups.values():
        order = rng.permutation(len(train))
        rows = order[left[order] > 1][:count]
        train[rows, columns] = np.nan
        left[rows] -= 1
    return replace(split, train=train)


def with_holes(name: str, percent: int) -> tuple[Any, ...]:
    """A row of Figure 1."""
    return *SETS[name](), percent


def itself(data: Any, rng: np.random.Generator) -> Any:
    """Table 1 has no splits."""
    return data


# ------------------------------------------------------------------------ methods


def counts(bunch: Bunch) -> dict[str, float]:
    """A row of Table 1."""
    instances, features = bunch.data.shape
    return {
        "instances": instances,
        "features": features,
        "classes": len(np.unique(bunch.target)),
        "kernels": N_GROUPS,
    }


def measured(
    model: Any, split: Halves, test: np.ndarray, weights: np.ndarray
) -> dict[str, Any]:
    """Test accuracy, the number of kernels with a nonzero weight, and the weights."""
    accuracy = float(np.mean(model.predict(test) == split.y_test))
    shares = np.asarray(weights, dtype=float).reshape(len(split.groups), -1)  # (p, k)
    selected = float(np.mean(np.sum(shares > SELECTED_WEIGHT, axis=0)))
    mean = np.mean(shares, axis=1)
    return {"accuracy": accuracy, "kernels": selected, "weights": mean / mean.sum()}


def fit_mixture(views: Any, X: Any, y: Any, **setting: Any) -> MixtureKDA:
    """The mixture as :class:`MixtureKDA` learns it."""
    return MixtureKDA(views, cv=None, **setting).fit(X, y)


def mixture(
    split: Halves, fit: Callable[..., MixtureKDA] = fit_mixture, **setting: Any
) -> dict[str, Any]:
    """MPKDA; each expert learns from the rows that have its kernel."""
    data = split.views(), split.train, split.y_train
    model = fit(*data, missing="available", **setting)
    return measured(model, split, split.test, model.class_weights_)


def one_sum(
    split: Halves, kind: Any, C: Sequence[float] = (), origin: bool = True, **other: Any
) -> dict[str, Any]:
    """A model with one sum of kernels, with zeros where rows are missing.

    They are filled in before centring (``origin``: Section 4.5) or after it. With C,
    the best of these by three-fold cross-validation.
    """
    if origin:
        train, test = split.zero_filled
        model = kind("precomputed", **other)
    else:
        train, test = split.train, split.test
        model = kind(split.views(), missing="zero", **other)
    if C:
        model = choose_C(model, train, split.y_train, C)
    else:
        model.fit(train, split.y_train)
    return measured(model, split, test, model.kernel_weights_)


def single(split: Halves, best: bool) -> dict[str, float]:
    """PKDA with single kernels: accuracy of the best one on the test rows, or mean."""
    found = [
        ProbabilisticKDA([view], cv=None)
        .fit(split.train, split.y_train)
        .score(split.test, split.y_test)
        for view in split.views()
    ]
    return {"accuracy": float(np.max(found) if best else np.mean(found))}


#: The paper has no prior over the weights.
likeliest = functools.partial(mixture, concentration=0.0)

#: Eq. 41 of Ye et al. (2007): lambda is learned too.
discriminant = functools.partial(one_sum, kind=MultipleKernelFDA, norm=1, alpha="learn")
machine = functools.partial(one_sum, kind=MultipleKernelSVC, C=FUSION_C)

LEARNERS: Columns = {
    PRI: likeliest,
    POS: functools.partial(likeliest, projection="posterior"),
    KDA: discriminant,
    SVM: machine,
}
COLUMNS: Columns = {
    **LEARNERS,
    BEST: functools.partial(single, best=True),
    AVERAGE: functools.partial(single, best=False),
    KDA_LOO: functools.partial(one_sum, kind=MultipleKernelFDA, norm=1),
    PRIOR: functools.partial(mixture, concentration=0.1),
    "Pri as printed": functools.partial(mixture, fit=fit_printed_mixture),
    PRINTED_WEIGHTS: functools.partial(likeliest, fit=fit_printed_posterior),
    EQUAL_WEIGHTS: functools.partial(likeliest, weights="uniform"),
    "mean kernel": functools.partial(one_sum, kind=KernelFDA),
}
WITH_HOLES: Columns = {
    **LEARNERS,
    KDA_MEAN: functools.partial(discriminant, origin=False),
    SVM_MEAN: functools.partial(machine, origin=False),
    EQUAL_WEIGHTS: COLUMNS[EQUAL_WEIGHTS],
}

#: The data sets that are run: TOX, and substitutes for the other eight.
SETS: dict[str, Callable[[], Microarray]] = {
    "TOX, clusters": clusters,
    "Prostate": functools.partial(pathways, "prostate"),
    "ALL, fusion": functools.partial(pathways, "all_fusion"),
    "Leukaemia": functools.partial(pathways, "leukemia"),
    "p53": functools.partial(pathways, "p53"),
}
#: Sources of the paper's data sets, in the Gene Expression Omnibus.
GEO = {
    "HRT": "GDS1412",
    "CLL-SUB": "GDS1454",
    "SMK-CAN": "GDS2771",
    "TOX": "GDS968",
    "BRE-CAN-CEL": "GDS1627",
    "BRA-CAN": "GDS1962",
    "PRO-CAN": "GDS2545",
    "GLI-III-IV": "GDS1975",
    "BRE-CAN-REC": "GDS2415",
}
#: Kinds of subsets of samples that may be the classes.
SUBSETS = ("disease state", "agent", "protocol", "cell type", "tissue", "other")
OTHERS = [name for name in GEO if name != "TOX"]


# ------------------------------------------------------------- claims and figure


def lacking(name: str, percent: int) -> str:
    """The name of a row of Figure 1."""
    return f"{name}, {percent} %"


def against(results: Results, column: str, other: str) -> Estimate:
    """Mean difference in accuracy over all rows."""
    rows = results.rows
    each = np.array([results.difference(r, column, other, "accuracy") for r in rows])
    mean, error = np.mean(each[:, 0]), np.linalg.norm(each[:, 1]) / len(each)
    return Estimate(float(mean), float(error))


def average_and_wins(results: Results) -> Iterator[Finding]:
    """Whether MPKDA-Pri has the highest average of the four, and the most wins."""
    columns, rows = (PRI, POS, KDA, SVM, BEST, AVERAGE), results.rows
    # as in the paper, accuracies are compared to two digits, so that several can win
    each = np.array(
        [[round(results.mean(r, c, "accuracy"), 2) for c in columns] for r in rows]
    )
    means, four = each.mean(axis=0), each[:, :4]
    wins = (four == four.max(axis=1)[:, None]).sum(axis=0)
    text = ", ".join(f"{mean:.2f}" for mean in means[:4])
    best = ", ".join(str(count) for count in wins)
    most = means[0] > max(means[1:4]) and wins[0] > max(wins[1:])
    yield (
        most,
        f"{text} on average; best on {best} of {len(rows)} sets; the best and the "
        f"average single kernel have {means[4]:.2f} and {means[5]:.2f}",
    )


def pri_is_best(results: Results) -> Iterator[Finding]:
    """Whether prior projections have the highest mean accuracy of the four methods."""
    for other in (POS, KDA, SVM):
        gap = against(results, PRI, other)
        yield gap.mean > 0, f"{gap:+.3f} against {other}"


def pri_beats_pos(results: Results) -> Iterator[Finding]:
    """Whether prior projections beat posterior ones by two standard errors."""
    gap, printed = against(results, PRI, POS), against(results, PRI, PRINTED_WEIGHTS)
    found = f"{gap:+.3f} against {POS}; {printed:+.3f} against {PRINTED_WEIGHTS}"
    yield gap.mean > 2 * gap.error, found


def like_the_best_kernel(results: Results) -> Iterator[Finding]:
    """Whether prior projections match the kernel that is best on the test rows."""
    gap = against(results, PRI, BEST)
    rows = ", ".join(
        f"{row} {results.difference(row, PRI, BEST, 'accuracy').mean:+.2f}"
        for row in results.rows
    )
    similar = abs(gap.mean) <= max(SIMILAR, 2 * gap.error)
    yield similar, f"{gap:+.3f} against {BEST} ({rows})"


def learning_pays(results: Results) -> Iterator[Finding]:
    """Whether learned weights beat equal ones."""
    gap, prior = (against(results, column, EQUAL_WEIGHTS) for column in (PRI, PRIOR))
    found = f"{gap:+.3f} against equal weights; with a Dirichlet prior {prior:+.3f}"
    yield gap.mean > 2 * gap.error, found


def _selected(results: Results, column: str) -> float:
    return float(np.mean(results.means(results.rows, column, "kernels")))


def few_kernels(results: Results) -> Iterator[Finding]:
    """Whether a class has at most five kernels in most splits."""
    numbers = [results.values(row, PRI, "kernels") for row in results.rows]
    share = float(np.mean(np.concatenate(numbers) <= 5))
    mean = _selected(results, PRI)
    yield share > 0.5, f"{mean:.1f} on average; {100 * share:.0f} percent of splits"


def order_of_sparsity(results: Results) -> Iterator[Finding]:
    """Whether the numbers of kernels are in the order of the paper."""
    kda, pri, svm = (_selected(results, column) for column in (KDA, PRI, SVM))
    yield kda < pri < svm, f"{kda:.1f}, {pri:.1f} and {svm:.1f} kernels"


def mapk_is_frequent(results: Results) -> Iterator[Finding]:
    """Whether the pathway is selected more often than the average one."""
    rows = [row for row in results.rows if not row.startswith("TOX")]
    if not rows:
        raise KeyError("sets with pathways")
    for column in (PRI, KDA, SVM):
        weights = np.concatenate([results.values(r, column, "weights") for r in rows])
        shares = 100 * np.mean(weights > SELECTED_WEIGHT, axis=0)
        own, mean = shares[PATHWAYS.index(MAPK)], np.mean(shares)
        text = f"{column} in {own:.0f} percent of splits, the average pathway in "
        yield own > mean, f"{text}{mean:.0f}"


def _fewest_and_most(results: Results, name: str) -> tuple[str, str]:
    """The rows of a panel of Figure 1 with the fewest and the most missing rows."""
    rows = [row for row in results.rows if row.startswith(f"{name}, ")]
    if len(rows) < 2:
        raise KeyError(name)
    return rows[0], rows[-1]


def _losses(results: Results, column: str, names: Sequence[str] = PANELS) -> Estimate:
    """Mean loss in accuracy from the fewest to the most missing rows."""
    drops = []
    for name in names:
        few, many = _fewest_and_most(results, name)
        first = results.values(few, column, "accuracy")
        drops.append(first - results.values(many, column, "accuracy"))
    return Estimate.of(np.concatenate(drops))


def pri_loses_least(results: Results, name: str) -> Iterator[Finding]:
    """Whether prior projections lose less accuracy than one sum filled with zeros."""
    columns = (PRI, POS, KDA, SVM, KDA_MEAN, SVM_MEAN)
    losses = {column: _losses(results, column, [name]) for column in columns}
    found = ", ".join(f"{column} {loss:.3f}" for column, loss in losses.items())
    least = all(losses[PRI][0] < losses[column][0] for column in (KDA, SVM))
    yield least, f"accuracy lost: {found}"


def origin_hurts(results: Results) -> Iterator[Finding]:
    """Whether zeros before centring cost accuracy where the most rows are missing."""
    for name in PANELS:
        _, row = _fewest_and_most(results, name)
        for column, other in ((KDA, KDA_MEAN), (SVM, SVM_MEAN)):
            gap = results.difference(row, column, other, "accuracy")
            yield gap.mean < 0, f"{row}: {gap:+.3f} for {column}"


def pos_loses_more(results: Results) -> Iterator[Finding]:
    """Whether posterior projections lose more than prior ones."""
    pri, pos = _losses(results, PRI)[0], _losses(results, POS)[0]
    yield pos > pri, f"{pos:.3f} against {pri:.3f}"


def draw_lacking(results: Results) -> Any:
    """Figure 1: accuracy against the percentage of missing rows, one panel per set."""
    figure, panels = subplots(len(PANELS))
    for panel, name in zip(panels, PANELS, strict=True):
        curves(results, {lacking(name, p): p for p in LACKING}, "accuracy", panel)
        panel.set(title=name, xlabel="training rows lacking, %")
    panels[0].set_ylabel("accuracy")
    legend_below(figure, panels[0])
    return figure


# ---------------------------------------------------------------------- the paper

LACKING_ROWS = {
    lacking(name, percent): functools.partial(with_holes, name, percent)
    for name in PANELS
    for percent in LACKING
}
PAPER = read_paper(
    "zhao2009",
    globals(),
    {
        "table1": (
            {
                "TOX": functools.partial(fetch, "tox", None),
                **{name: functools.partial(series, name, None) for name in OTHERS},
            },
            itself,
            {"data": counts},
        ),
        "table2": (
            {**SETS, **{name: functools.partial(pathways, name) for name in OTHERS}},
            halves,
            COLUMNS,
        ),
        "figure1": (LACKING_ROWS, holes, WITH_HOLES, draw_lacking),
    },
)
