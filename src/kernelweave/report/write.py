"""Fill the template with the results, and write the page."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from kernelweave._text import escaped
from kernelweave._writing import check_name, written_whole
from kernelweave.exceptions import library
from kernelweave.inspection._rows import as_stack, targets_of
from kernelweave.report.contents import collect
from kernelweave.report.section import Case


def write_report(
    model: Any,
    X: Any,
    y: Any,
    path: str | os.PathLike[str],
    *,
    title: str = "What the model has learned",
    groups: Any = None,
    sample_weight: Any = None,
    cv: int = 5,
    n_resamples: int = 100,
    n_decoys: int = 39,
    random_state: Any = 0,
    report: Any = None,
) -> None:
    """Write what a model has learned, and how far to trust it, to one HTML file.

    The page needs no network. It has the score on held-out rows compared with simpler
    models, the share of each view with its interval and p-value, what is lost without
    each view, pictures of held-out rows, the most important columns, contributions to
    some held-out decisions, what was done to the columns, the certificate, and what is
    needed to repeat all of it. Sections that do not apply say why.

    Parameters
    ----------
    model : estimator
        Fitted classifier or regressor of this package, not inside a Pipeline.
    X, y : array-like
        The rows and targets that it was fitted on.
    path : str or path-like
        The file, which is written whole or not at all.
    title : str
        Heading of the page.
    groups, sample_weight : array-like of shape (n,), default=None
        As in ``fit``.
    cv : int, default=5
        Number of folds.
    n_resamples : int, default=100
        Halves of the rows for the intervals of the shares.
    n_decoys : int, default=39
        Shuffled copies of each view for the p-values.
    random_state : int, RandomState instance or None, default=0
        Source of randomness for folds, halves and shuffles.
    report : callable, default=None
        Called with a string that says what is being done.

    Notes
    -----
    The model is fitted again many times, on folds, halves and sets of views, so a page
    takes 10 to 100 times as long as a fit. The page lists the warnings of these fits.

    See Also
    --------
    kernelweave.evaluation.evaluate : Only the comparison with simpler models.
    """
    check_is_fitted(model)
    template = _template()
    path = Path(path)
    if not path.parent.is_dir():  # now, not after minutes of work
        raise FileNotFoundError(f"there is no folder {str(path.parent)!r} to write to")
    check_name(path)
    how = {"cv": cv, "groups": groups, "sample_weight": sample_weight}
    how |= {"random_state": random_state, "report": report or (lambda text: None)}
    y = targets_of(y, "write_report")
    case = Case(model, as_stack(X, model), y, n_resamples, n_decoys, how)
    page = template.render(collect(case), title=title)
    with written_whole(path) as file:
        file.write(page.encode("utf-8", errors="replace"))


def _template() -> Any:
    """The page, to be filled in; all values are escaped, except our own drawings.

    In these, too, controls are written out, which labels and names may hold.
    """
    needed = "a report needs jinja2: pip install 'kernelweave[report]'"
    jinja2 = library("jinja2", needed)
    environment = jinja2.Environment(
        autoescape=True,
        finalize=_without_controls,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    text = files("kernelweave.report").joinpath("page.html").read_text("utf-8")
    return environment.from_string(text)


def _without_controls(value: Any) -> Any:
    """A value of the template; markup stays markup."""
    return type(value)(escaped(value)) if isinstance(value, str) else value
