"""Save fitted models to files that run no code when they are loaded.

A model file is a ZIP archive with two stored members::

    header.json   format, versions, class, columns, size and SHA-256 of the model
    model.skops   the model in the format of skops

Neither holds pickled objects. Loading constructs instances of the types in
:func:`is_ours` and of those that skops trusts (scikit-learn's estimators, NumPy and
SciPy arrays), and of no others unless the caller names them.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import os
import platform
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import sklearn
from sklearn import metrics
from sklearn.base import BaseEstimator
from sklearn.metrics import get_scorer, get_scorer_names

from kernelweave._files import check_arrays, special_kind
from kernelweave._text import some
from kernelweave._writing import check_name, written_whole
from kernelweave.exceptions import ModelFileError, library
from kernelweave.views.caches import (
    forget_caches,
    names_cache,
    parts_of,
    why_not_storable,
)

#: Increased when files of earlier versions can no longer be read; others are refused.
FORMAT = 1
HEADER, MODEL = "header.json", "model.skops"
#: The member of a skops file that names the types.
SCHEMA = "schema.json"
#: How skops writes None.
EMPTY_NODE = {
    "__class__": "str",
    "__module__": "builtins",
    "__loader__": "JsonNode",
    "content": "null",
    "is_json": True,
}
#: Entries of the header, and the type of each.
HEADER_TYPES: dict[str, Any] = {
    "format": int,
    "written": str,
    "versions": dict,
    "columns": list | None,
    "notes": dict,
}
#: Errors raised by a model whose parts do not fit together.
INCONSISTENT = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError)
#: Where scikit-learn defines what its searches, ensembles and calibrated classifiers,
#: and the ``cv`` and requests for metadata of ours, keep besides estimators.
SCIKIT_LEARN = (
    "sklearn.calibration",
    "sklearn.metrics._scorer",
    "sklearn.model_selection._split",
    "sklearn.utils._bunch",
    "sklearn.utils._metadata_requests",
)
#: Where the types of a fitted model are defined.
ROOMS = ("criteria", "fits", "kernels", "models", "solvers", "views", "weights")
#: Endings of the functions of sklearn.metrics that a scorer may be made of ...
SCORES = ("_score", "_loss", "_error")
#: ... and those of sklearn.feature_selection that rate columns.
SELECTS = (
    "chi2",
    "f_classif",
    "f_regression",
    "mutual_info_classif",
    "mutual_info_regression",
    "r_regression",
)
#: What runs no code of others: sparse rows; the dtypes that scikit-learn's imputers
#: keep; selectors of columns; and values in tables.
HARMLESS = (
    "scipy.sparse._csr.csr_array",
    "scipy.sparse._csr.csr_matrix",
    "numpy.dtype",
    "numpy.number",
    "sklearn.compose._column_transformer.make_column_selector",
    "decimal.Decimal",
    "pandas.Interval",
    "pandas._libs.interval.Interval",
)


def save(
    model: BaseEstimator,
    path: str | os.PathLike[str],
    *,
    notes: dict[str, Any] | None = None,
    resumable: bool = True,
) -> None:
    """Write a model to one file, whole or not at all.

    The file has the model without its callbacks and caches (``memory`` of the
    estimators inside is None in it), the versions it was made with, what was done to
    its columns, and a checksum. An existing file is replaced once the new one is
    complete, and keeps its permissions; a new one is for its owner alone.

    Parameters
    ----------
    model : estimator
        An estimator of this package, fitted or not, or one of scikit-learn's that
        contains it, such as a pipeline. Its arrays must be NumPy's.
    path : str or path-like
        The file; by convention its name ends in ``.kw``.
    notes : dict, default=None
        Anything else that JSON can hold, under names of your choice, such as
        ``{"cohort": "2024"}``; ``kernelweave inspect`` shows it.
    resumable : bool, default=True
        Whether ``partial_fit`` can go on with the model that is loaded. It needs some
        of the rows (at most 12,287 on a CPU; those of a table as numbers, after the
        transformers), which the file then holds. Predictions do not need them.

    See Also
    --------
    load : The inverse.

    Examples
    --------
    >>> import tempfile, os, kernelweave
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> model = kernelweave.KernelFDA().fit(X, y)
    >>> path = os.path.join(tempfile.mkdtemp(), "model.kw")
    >>> kernelweave.save(model, path)
    >>> same = kernelweave.load(path)
    >>> bool((same.predict(X) == model.predict(X)).all())
    True
    """
    skops_io, path = _skops(), Path(path)
    check_name(path)
    if not isinstance(model, BaseEstimator) or isinstance(model, type):
        raise TypeError(
            f"save expects an estimator, got {type(model).__name__}; fit a model and "
            "pass the fitted model"
        )
    if not isinstance(notes, dict | None):
        raise TypeError(f"notes must be a dict, got {notes!r:.80}")
    if not isinstance(resumable, bool | np.bool_):
        raise TypeError(f"resumable must be a bool, got {resumable!r:.80}")
    if hasattr(model, "set_callbacks"):  # which hold threads, sockets and logs
        model = copy(model).set_callbacks()
    if not resumable:
        model = _finished(model)
    try:
        content, _ = _rewritten(skops_io.dumps(model))
    except Exception as error:  # what skops cannot write differs from type to type
        raise ValueError(
            f"cannot save this {type(model).__name__}: {error}. Kernels must be named, "
            "or be functions and classes that can be imported; a model with arrays of "
            "another library is saved after a fit to NumPy arrays"
        ) from error
    reason = why_not_storable(model)
    if reason is not None:
        raise ValueError(f"cannot save this {type(model).__name__}: {reason}")
    header = {
        "format": FORMAT,
        "class": type(model).__name__,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": library_versions(),
        "columns": getattr(model, "column_summary_", None),
        "notes": notes or {},
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    text = json.dumps(header, indent=1, default=str)
    with (
        written_whole(path, private=True) as file,
        zipfile.ZipFile(file, "w") as archive,
    ):
        archive.writestr(HEADER, text)
        archive.writestr(MODEL, content)


def _finished(model: BaseEstimator) -> BaseEstimator:
    """A copy without the rows and sums of ``partial_fit``, at any depth."""
    attributes = (getattr(part, "__dict__", {}) for part in parts_of(model))
    portions = [found["_portions"] for found in attributes if found.get("_portions")]
    # the copy refers to these in place of copies of their own
    dropped = {id(part): replace(part, accumulator=None) for part in portions}
    return deepcopy(model, dropped)


def load(path: str | os.PathLike[str], *, trusted: Iterable[str] = ()) -> BaseEstimator:
    """Read a model that :func:`save` wrote, without running any code in the file.

    Parameters
    ----------
    path : str or path-like
        The file.
    trusted : iterable of str, default=()
        Full names of types and functions from elsewhere that the model may use, such
        as ``"my_package.my_kernel"``. Their modules are imported: name only what you
        would run.

    Returns
    -------
    model : estimator
        With the same predictions, bit for bit.

    See Also
    --------
    save : The inverse.
    """
    skops_io, path = _skops(), Path(path)
    if isinstance(trusted, str):
        raise TypeError(
            f"trusted is a list of names, got the string {trusted!r}; use [{trusted!r}]"
        )
    _, content = _read(path)
    with _refusals(path):
        # neither the members nor the arrays in them may be larger than what is stored
        with zipfile.ZipFile(io.BytesIO(content)) as members:
            _check_stored(members, len(content))
            check_arrays(members)
        content, names = _rewritten(content)
        known = {name for name in names if is_ours(name)} | set(trusted)
        try:
            model = skops_io.loads(content, trusted=list(known))
        except skops_io.exceptions.UntrustedTypesFoundException as error:
            unknown = skops_io.get_untrusted_types(data=content)
            foreign = [name[:80] for name in unknown if name not in known]
            raise ModelFileError(
                f"{str(path)!r} uses {some(foreign)}, which kernelweave does not know; "
                "if you trust whoever wrote the file, load it with "
                f"trusted={foreign[:3]}"
            ) from error
        if not isinstance(model, BaseEstimator):
            raise ModelFileError(f"it holds a {type(model).__name__}, not an estimator")
        forget_caches(model)  # however a forged file may have named them
        reason = why_not_storable(model)
        if reason is not None:
            raise ModelFileError(reason)
        return model


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The header of a model file; the model is checked but not loaded."""
    return _read(Path(path))[0]


def _rewritten(content: bytes) -> tuple[bytes, set[str]]:
    """A model without caches, and the names of its types."""
    names: set[str] = set()
    is_changed = False

    def rewrite(part: dict[str, Any]) -> dict[str, Any]:
        nonlocal is_changed
        names.add(f"{part.get('__module__')}.{part.get('__class__')}")
        if part.get("__loader__") == "ObjectNode" and part.get("content"):
            attributes = part["content"].get("content")
            if isinstance(attributes, dict) and _is_cache(attributes.get("memory")):
                is_changed = True
                attributes["memory"] |= EMPTY_NODE
        return part

    rewritten = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        schema = json.loads(old.read(SCHEMA), object_hook=rewrite)
        if not is_changed:
            return content, names
        with zipfile.ZipFile(rewritten, "w") as new:
            for name in old.namelist():
                text = json.dumps(schema) if name == SCHEMA else old.read(name)
                new.writestr(name, text)
    return rewritten.getvalue(), names


def _is_cache(memory: dict[str, Any] | None) -> bool:
    """Whether an attribute of this name, as skops writes it, names a folder."""
    if memory is None:
        return False
    is_json = memory.get("__loader__") == EMPTY_NODE["__loader__"]
    return not is_json or names_cache(json.loads(memory["content"]))


def is_ours(name: str) -> bool:
    """Whether a type is one of the parts that this package's models are made of.

    Only classes that a module of :data:`ROOMS` or :data:`SCIKIT_LEARN` itself defines
    count, since these modules import others by name, besides :data:`HARMLESS` and the
    functions that scikit-learn scores with.
    """
    if name in HARMLESS or name in _score_functions():
        return True
    module, _, attribute = name.rpartition(".")
    rooms = [["kernelweave", room] for room in ROOMS]
    if module.split(".")[:2] not in rooms and module not in SCIKIT_LEARN:
        return False
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ImportError:  # it never was, or is no longer, a module of ours
        return False
    return isinstance(found, type) and found.__module__ == module


@cache
def _score_functions() -> set[str]:
    """The functions of scikit-learn that scorers and selectors of columns call.

    They compute numbers from arrays, and do nothing else.
    """
    from sklearn import feature_selection  # which takes a while to import

    found = [get_scorer(name)._score_func for name in get_scorer_names()]
    found += [getattr(metrics, n) for n in metrics.__all__ if n.endswith(SCORES)]
    found += [getattr(feature_selection, name) for name in SELECTS]
    return {f"{function.__module__}.{function.__name__}" for function in found}


def library_versions() -> dict[str, str]:
    """The versions of this package, of what it builds on, and of Python."""
    import kernelweave

    return {
        "kernelweave": kernelweave.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "python": platform.python_version(),
    }


def _skops() -> Any:
    needed = "saving and loading models needs skops: pip install 'kernelweave[save]'"
    return library("skops.io", needed)


def _read(path: Path) -> tuple[dict[str, Any], bytes]:
    """The header of a file, and the model as bytes, whose checksum is right."""
    kind = special_kind(path)
    if kind is not None:
        raise ModelFileError(
            f"cannot load {str(path)!r}: it is {kind}, not a file; copy the model to a "
            "file, and name that"
        )
    with _refusals(path), zipfile.ZipFile(path) as archive:
        if sorted(archive.namelist()) != [HEADER, MODEL]:
            raise ModelFileError("it is a ZIP archive of something else")
        _check_stored(archive, path.stat().st_size)
        header = dict(json.loads(archive.read(HEADER)))
        for key, kind in HEADER_TYPES.items():
            if not isinstance(header.get(key), kind):
                raise ModelFileError(f"its header has no {key!r} of the right type")
        if header["format"] != FORMAT:
            made_by = str(header["versions"].get("kernelweave", "unknown"))
            newer = header["format"] > FORMAT
            cure = "update kernelweave" if newer else "fit the model again"
            raise ModelFileError(
                f"its format is {header['format']}, written by version {made_by:.40}; "
                f"this version reads format {FORMAT}: {cure}"
            )
        content = archive.read(MODEL)
        if hashlib.sha256(content).hexdigest() != header.get("sha256"):
            raise ModelFileError("its checksum is wrong: the file was changed")
    return header, content


def _check_stored(archive: zipfile.ZipFile, size: int) -> None:
    """Members are stored, not compressed, and no larger than the file together."""
    members = archive.infolist()
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise ModelFileError("it is compressed, which files of kernelweave are not")
    if sum(member.file_size for member in members) > size:
        raise ModelFileError("its parts claim to be larger than the file")


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    """One sentence with the name of the file, whatever is wrong with it."""
    try:
        yield
    except ModelFileError as error:
        if str(path) in str(error):
            raise
        raise ModelFileError(
            f"cannot load {str(path)!r}: {error}; save the model again"
        ) from error
    except OSError as error:
        raise type(error)(
            error.errno, f"cannot read {str(path)!r}: {error.strerror or error}"
        ) from error
    except MemoryError:
        raise
    except ModuleNotFoundError as error:
        name = str(error.name).partition(".")[0]
        wanted = "kernelweave[tables]" if name == "pandas" else name
        raise ImportError(
            f"cannot load {str(path)!r}: the model needs {name}: pip install {wanted!r}"
        ) from error
    except Exception as error:  # a damaged file fails anywhere in zipfile or skops
        raise ModelFileError(
            f"cannot load {str(path)!r}: it is damaged, or was not written by "
            f"kernelweave.save ({_cause(error)}); save the model again"
        ) from error


@contextmanager
def used_from(path: str | os.PathLike[str]) -> Iterator[None]:
    """Blame the file for errors that only wrong contents of a model can explain.

    A file with the right checksum can still hold a model whose parts do not fit.
    """
    try:
        yield
    except INCONSISTENT as error:
        raise ModelFileError(
            f"the model in {str(path)!r} cannot be used: its parts do not fit together "
            f"({_cause(error)}); save the model again"
        ) from error


def _cause(error: Exception) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text:.200}"
