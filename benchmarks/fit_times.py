"""How long a whole fit takes, from a table to a model, for rows and kernels."""

from __future__ import annotations

from functools import partial

from harness import Section, alternate

from kernelweave import KernelFDA, MultipleKernelFDA
from kernelweave.datasets import make_views

#: Rows and views of each line; the kernel "auto" makes six kernels of a view.
SIZES = ((200, 2), (200, 10), (500, 2), (500, 10), (1000, 2), (1000, 10), (2000, 2))
LIMIT_S = 120.0
COLUMNS = {
    "default": lambda views: MultipleKernelFDA(views),
    "cv=None": lambda views: MultipleKernelFDA(views, cv=None),
    "norm=1, cv=None": lambda views: MultipleKernelFDA(views, norm=1, cv=None),
    "equal weights, cv=None": lambda views: KernelFDA(views, cv=None),
}


def run(quick: bool = False) -> Section:
    """CPU seconds of a fit for each size and setting, on one core."""
    section = Section(
        "How long will my fit take?",
        "CPU seconds of `fit` on one core, on a table of synthetic rows in three "
        "classes: views of five columns with the kernel `auto`, which makes six "
        "kernels of each; kernels are computed within the fit. The columns are "
        '`MultipleKernelFDA(views)` as it is, with `norm="loo"` and the folds behind '
        "`cv_score_`; the same with `cv=None`, without the folds; with `norm=1`, "
        "without the choice among four norms; and `KernelFDA`, which learns no "
        f"weights. A time after > is the limit of {LIMIT_S:.0f} s.",
        ["rows", "views", "kernels", *COLUMNS],
    )
    for n, n_views in SIZES[:2] if quick else SIZES:
        data = make_views(n, n_views, 2, 3, random_state=0, as_frame=False)
        tasks = {
            name: partial(make(data.views).fit, data.data, data.target)
            for name, make in COLUMNS.items()
        }
        timings = alternate(tasks, repeats=3, budget_s=2.0, limit_s=LIMIT_S)
        times = [timings[name].shown(2) for name in COLUMNS]
        section.rows.append([n, n_views, 6 * n_views, *times])
    section.remarks.append(
        "Twice the rows take three to seven times as long, and five times the kernels "
        "two to four times. For a first look, set `norm=1, cv=None`: three to ten "
        "times faster than the default, which chooses among four norms and measures a "
        "score that can be reported."
    )
    return section
