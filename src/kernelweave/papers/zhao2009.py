"""Zhao, Yu, Ye, Liu (2009): mixtures of probabilistic kernel discriminants.

Protocol (Section 5): nine microarrays, 15 kernels each, one per biological pathway; ten
random partitions; accuracy of MPKDA with prior (Eq. 23) and posterior (Eq. 26)
projections, against discriminant analysis and support vector machines that learn a sum
of kernels. Figure 1 removes 5 to 25 percent of the training rows from each kernel.

What the paper leaves open or is not available, and what is done here
(``docs/papers/zhao2009.md`` has more):

* Of the nine data sets only TOX is available, without the names of its genes: its 15
  kernels are clusters of genes. Four other microarrays with named genes replace the
  rest, all with the same 15 KEGG pathways that are known to matter in cancer. So no
  cell of Table 2 can be compared, but the claims about it can be tested.
* Gaussian kernels whose squared width is the median squared distance; genes have mean
  zero and variance one; half of each class is there to learn from.
* MPKDA has maximum likelihood weights from densities of rows left out. The algorithm as
  printed has no maximum; it is a column of its own, stopped after 100 steps.
* C of the support vector machines by three folds from 1, 10 and 100.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.model_selection import GridSearchCV, train_test_split

from kernelweave.datasets import MissingDataError, fetch_expression
from kernelweave.kernels import RBF
from kernelweave.models import (
    KernelFDA,
    MixtureKDA,
    MultipleKernelFDA,
    MultipleKernelSVC,
    ProbabilisticKDA,
)
from kernelweave.papers import _zhao2009_claims as says
from kernelweave.papers.experiment import (
    Claim,
    Columns,
    Experiment,
    Measure,
    Paper,
    Published,
    Split,
)
from kernelweave.papers.reference.printed_mixture import (
    PrintedMixtureKDA,
    PrintedPosteriorKDA,
)

__all__ = ["PAPER"]

KERNELS = 15
#: Number of genes of TOX, those with the largest variance, that are clustered.
CLUSTERED = 1500
C_GRID = (1.0, 10.0, 100.0)
#: Percentages of training rows that each kernel lacks.
LACKING = (0, 5, 10, 15, 20, 25)

ACCURACY = Measure("accuracy", digits=2)
SELECTED = Measure("kernels", digits=1, better="")


# ------------------------------------------------------------------- data, splits


@dataclass(frozen=True)
class Microarray:
    """Gene expression with genes in groups.

    Attributes
    ----------
    data : ndarray of shape (n, d)
        Genes of all groups, with mean zero and variance one.
    classes : ndarray of shape (n,)
        Class of each row.
    groups : dict
        Columns of each group.
    """

    data: np.ndarray
    classes: np.ndarray
    groups: Mapping[str, slice]


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


@functools.cache
def pathways(name: str) -> Microarray:
    """A microarray with one group per pathway, in the order of their names."""
    bunch = fetch_expression(name, gene_sets="kegg_msigdb", smallest=1, as_frame=False)
    where = {view: columns for view, _, columns in bunch.views}
    blocks = [bunch.data[:, where[view]] for view in says.PATHWAYS]
    groups = columns_of(says.PATHWAYS, [block.shape[1] for block in blocks])
    return Microarray(standard(np.hstack(blocks)), bunch.target, groups)


@functools.cache
def tox() -> tuple[np.ndarray, np.ndarray]:
    """TOX as published: genes without names (171, 5748), and classes (171,)."""
    bunch = fetch_expression("tox", gene_sets=None, as_frame=False)
    return bunch.data, bunch.target


@functools.cache
def clusters() -> Microarray:
    """TOX in 15 clusters of genes that vary together."""
    raw, classes = tox()
    most = np.argsort(np.var(raw, axis=0))[-CLUSTERED:]
    values = standard(raw[:, np.sort(most)])
    member = KMeans(KERNELS, n_init=3, random_state=0).fit_predict(values.T)
    order = np.argsort(member, kind="stable")
    names = [f"cluster {i + 1}" for i in range(KERNELS)]
    groups = columns_of(names, np.bincount(member, minlength=KERNELS).tolist())
    return Microarray(values[:, order], classes, groups)


def columns_of(names: Sequence[str], sizes: Sequence[int]) -> dict[str, slice]:
    """Adjacent groups of columns with these sizes."""
    ends = np.cumsum(sizes).tolist()
    starts = [0, *ends[:-1]]
    return {n: slice(a, b) for n, a, b in zip(names, starts, ends, strict=True)}


def unavailable(name: str) -> Microarray:
    """A data set that is not available in the paper's selection of genes."""
    raise MissingDataError(
        f"its samples are {GEO[name]} of the Gene Expression Omnibus "
        "(ncbi.nlm.nih.gov/geo); there is no row for it, because the paper does not "
        "publish its choice of genes and of 15 pathways"
    )


def standard(values: np.ndarray) -> np.ndarray:
    """Columns of mean zero and variance one."""
    size = np.std(values, axis=0)
    return (values - np.mean(values, axis=0)) / np.where(size > 0, size, 1.0)


def halves(array: Microarray, rng: np.random.Generator) -> Halves:
    """A split with half of each class for training."""
    train, test = train_test_split(
        np.arange(len(array.classes)),
        test_size=0.5,
        stratify=array.classes,
        random_state=int(rng.integers(2**31)),
    )
    X, y = array.data, array.classes
    return Halves(X[train], y[train], X[test], y[test], array.groups)


def holes(data: tuple[Microarray, int], rng: np.random.Generator) -> Halves:
    """Halves, with a share of the training rows removed from each group.

    Rows that lack a group at some percentage also lack it at every higher one. A row
    never loses its last group; the next row drawn loses the group instead.
    """
    array, percent = data
    split = halves(array, rng)
    train = split.train.copy()
    count = round(percent / 100 * len(train))
    left = np.full(len(train), len(array.groups))
    for columns in array.groups.values():
        order = rng.permutation(len(train))
        rows = order[left[order] > 1][:count]
        train[rows, columns] = np.nan
        left[rows] -= 1
    return Halves(train, split.y_train, split.test, split.y_test, array.groups)


def with_holes(name: str, percent: int) -> tuple[Microarray, int]:
    """A row of Figure 1."""
    return SETS[name](), percent


def itself(data: Any, rng: np.random.Generator) -> Any:
    """Table 1 has no splits."""
    return data


# ------------------------------------------------------------------------ methods


def counts(data: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
    """A row of Table 1."""
    (instances, features), classes = data[0].shape, len(np.unique(data[1]))
    numbers = (instances, features, classes, KERNELS)
    return dict(zip(COUNTS, map(float, numbers), strict=True))


def measured(model: Any, split: Halves, weights: Any = None) -> dict[str, Any]:
    """Test accuracy, the number of kernels with a nonzero weight, and the weights."""
    accuracy = float(np.mean(model.predict(split.test) == split.y_test))
    if weights is None:
        weights = model.kernel_weights_
    shares = np.asarray(weights, dtype=float).reshape(len(split.groups), -1)  # (p, k)
    selected = float(np.mean(np.sum(shares > says.SELECTED, axis=0)))
    mean = np.mean(shares, axis=1)
    return {"accuracy": accuracy, "kernels": selected, "weights": mean / mean.sum()}


def mixture(
    split: Halves, kind: type[MixtureKDA] = MixtureKDA, **setting: Any
) -> dict[str, Any]:
    """MPKDA; each expert learns from the rows that have its kernel."""
    model = kind(split.views(), missing="available", **setting)
    model.fit(split.train, split.y_train)
    return measured(model, split, model.class_weights_)


def discriminant(split: Halves) -> dict[str, Any]:
    """KDA_QCQP: the sum of kernels of Ye et al. (2007); zeros where missing."""
    model = MultipleKernelFDA(split.views(), norm=1, missing="zero")
    return measured(model.fit(split.train, split.y_train), split)


def machine(split: Halves) -> dict[str, Any]:
    """SVM_SILP: the sum of kernels with the largest margin; zeros where missing."""
    model = MultipleKernelSVC(split.views(), missing="zero")
    search = GridSearchCV(model, {"C": C_GRID}, cv=3)
    search.fit(split.train, split.y_train)
    return measured(search.best_estimator_, split)


def mean_kernel(split: Halves) -> dict[str, Any]:
    """Discriminant analysis with the mean of all kernels."""
    model = KernelFDA(split.views(), missing="zero")
    return measured(model.fit(split.train, split.y_train), split)


def single(split: Halves, best: bool) -> dict[str, float]:
    """PKDA with single kernels: accuracy of the best one on the test rows, or mean."""
    found = [
        ProbabilisticKDA([view])
        .fit(split.train, split.y_train)
        .score(split.test, split.y_test)
        for view in split.views()
    ]
    return {"accuracy": float(np.max(found) if best else np.mean(found))}


#: The paper has no prior over the weights.
likeliest = functools.partial(mixture, concentration=0.0)

LEARNERS: Columns = {
    says.PRI: likeliest,
    says.POS: functools.partial(likeliest, projection="posterior"),
    says.KDA: discriminant,
    says.SVM: machine,
}
REFERENCES: Columns = {
    says.UNIFORM: functools.partial(likeliest, weights="uniform"),
    says.MEAN: mean_kernel,
}
COLUMNS: Columns = {
    **LEARNERS,
    says.BEST: functools.partial(single, best=True),
    "Ave Single": functools.partial(single, best=False),
    says.PRIOR: functools.partial(mixture, concentration=0.1),
    "Pri as printed": functools.partial(mixture, kind=PrintedMixtureKDA),
    says.PRINTED: functools.partial(
        likeliest, kind=PrintedPosteriorKDA, projection="posterior"
    ),
    **REFERENCES,
}

#: The data sets that are run: TOX, and substitutes for the other eight.
SETS: dict[str, Callable[[], Microarray]] = {
    "TOX, clusters": clusters,
    "Prostate": functools.partial(pathways, "prostate"),
    "ALL, fusion": functools.partial(pathways, "all_fusion"),
    "Leukaemia": functools.partial(pathways, "leukemia"),
    "p53": functools.partial(pathways, "p53"),
}
#: Instances, features and classes of the paper's data sets.
TABLE_1 = {
    "HRT": (89, 2759, 2),
    "CLL-SUB": (100, 11340, 2),
    "SMK-CAN": (187, 19993, 2),
    "TOX": (171, 5748, 4),
    "BRE-CAN-CEL": (83, 20163, 4),
    "BRA-CAN": (180, 49151, 4),
    "PRO-CAN": (153, 11302, 3),
    "GLI-III-IV": (85, 22283, 2),
    "BRE-CAN-REC": (118, 19200, 2),
}
#: Sources of the paper's data sets, in its order.
GEO = dict(
    zip(
        TABLE_1,
        (
            *("GDS1412", "GDS1454", "GDS2771", "GDS968", "GDS1627"),
            *("GDS1962", "GDS2545", "GDS1975", "GDS2415"),
        ),
        strict=True,
    )
)
MISSING = {
    name: functools.partial(unavailable, name) for name in TABLE_1 if name != "TOX"
}
COUNTS = ("instances", "features", "classes", "kernels")


PAPER = Paper(
    key="zhao2009",
    reference="Zhao, Yu, Ye, Liu: Nonlinear multiple kernel learning via mixture of "
    "probabilistic kernel discriminant analysis. 2009.",
    experiments=(
        Experiment(
            key="table1",
            title="Table 1: the microarrays",
            rows={"TOX": tox, **MISSING},
            split=itself,
            columns={"data": counts},
            measures=tuple(Measure(name, digits=0, better="") for name in COUNTS),
            splits=1,
            quick=1,
            published={
                (row, "data"): {
                    name: Published(float(value))
                    for name, value in zip(COUNTS, (*values, KERNELS), strict=True)
                }
                for row, values in TABLE_1.items()
            },
        ),
        Experiment(
            key="table2",
            title="Table 2: accuracy on TOX, and on substitutes for the other sets",
            rows={**SETS, **MISSING},
            split=halves,
            columns=COLUMNS,
            measures=(ACCURACY, SELECTED),
            splits=10,
            quick=2,
            claims=(
                Claim("MPKDA-Pri is the best of the four on average", says.pri_is_best),
                Claim("it is better than MPKDA-Pos", says.pri_beats_pos),
                Claim(
                    "it is as good as the best single kernel", says.like_the_best_kernel
                ),
                Claim(
                    "usually no more than five kernels are selected for a class",
                    says.few_kernels,
                ),
                Claim(
                    "KDA_QCQP is sparsest, then MPKDA, then SVM_SILP",
                    says.order_of_sparsity,
                ),
                Claim("the MAPK pathway is frequently selected", says.mapk_is_frequent),
                Claim(
                    "learning kernel weights pays off (our test: MPKDA-Pri against "
                    "equal weights)",
                    says.learning_pays,
                ),
            ),
        ),
        Experiment(
            key="figure1",
            title="Figure 1: accuracy when kernels lack training rows",
            rows={
                says.lacking(name, percent): functools.partial(
                    with_holes, name, percent
                )
                for name in says.PANELS
                for percent in LACKING
            },
            split=holes,
            columns={**LEARNERS, says.UNIFORM: REFERENCES[says.UNIFORM]},
            measures=(ACCURACY,),
            splits=10,
            quick=1,
            row_title="data set and rows missing",
            claims=(
                Claim(
                    "MPKDA-Pri loses the least of the four at 25 percent",
                    says.pri_loses_least,
                ),
                Claim("MPKDA-Pos loses more than MPKDA-Pri", says.pos_loses_more),
            ),
            draw=functools.partial(says.draw_lacking, percentages=LACKING),
        ),
    ),
)
