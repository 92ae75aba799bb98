"""The settings file, ``--views views.toml``: what options cannot express."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kernelweave import kernels
from kernelweave._files import require_file
from kernelweave.cli.read import suggest
from kernelweave.kernels.spec import KERNELS

#: Parameters of the estimators that are also options.
MODEL_OPTIONS = ("norm", "alpha", "class_weight", "missing")
#: Kernels that can be written with parameters.
WITH_PARAMETERS = {**KERNELS, **{kind.__name__: kind for kind in KERNELS.values()}}

#: Reads a value, or says what it must be.
Check = Callable[[Any], Any]


def read_settings(options: argparse.Namespace, parameters: list[str]) -> None:
    """Complete the options that were not given from the file ``options.views``.

    Adds ``options.view_settings``, a dict from the name of a view to its ``columns``,
    ``drop`` and ``kernel``, and ``options.parameters``, the parameters of the
    estimator that were given.

    Parameters
    ----------
    options : argparse.Namespace
        Their defaults are None, or an empty list.
    parameters : list of str
        Names of all parameters of the estimators.
    """
    given = {name: getattr(options, name) for name in MODEL_OPTIONS}
    options.parameters = {k: v for k, v in given.items() if v is not None}
    options.view_settings = {}
    if options.views is None:
        return
    path = Path(options.views)
    require_file(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"there is no file {options.views!r}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a TOML file: {error!s:.200}") from None
    tables = dict.fromkeys(("data", "model", "views"), _of_type("table", dict))
    content = {table: {} for table in tables} | _checked(f"{path}", content, tables)
    for key, value in _checked(f"{path}: [data]", content["data"], DATA).items():
        if not getattr(options, key):
            setattr(options, key, value)
    known = dict.fromkeys(parameters, _of_type("value", object)) | {"kernel": _kernel}
    model = _checked(f"{path}: [model]", content["model"], known)
    options.kernel = options.kernel or model.pop("kernel", None)
    options.parameters = model | options.parameters
    views = dict.fromkeys(content["views"], _of_type("table", dict))
    for name, view in _checked(f"{path}: [views]", content["views"], views).items():
        options.view_settings[name] = _checked(f"{path}: [views.{name}]", view, VIEW)


def _checked(
    where: str, table: dict[str, Any], known: Mapping[str, Check]
) -> dict[str, Any]:
    """The values of a table after their checks; unknown keys are refused."""
    found = {}
    for key, value in table.items():
        if key not in known:
            hint = suggest(key, list(known)).replace("the columns", "the keys")
            raise ValueError(f"{where}: {key!r} is not a key; {hint}")
        try:
            found[key] = known[key](value)
        except ValueError as error:
            raise ValueError(f"{where}: {key} {error}") from None
    return found


def _of_type(name: str, kind: type) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, kind):
            raise ValueError(f"must be a {name}, found {value!r}")
        return value

    return check


def _task(value: Any) -> str:
    if value not in ("classification", "regression"):
        raise ValueError(f"must be 'classification' or 'regression', found {value!r}")
    return value


def _names(value: Any) -> list[str]:
    if isinstance(value, str):
        value = [value]
    if not (isinstance(value, list) and all(isinstance(v, str) for v in value)):
        raise ValueError(f"must be a list of names, found {value!r}")
    return value


def _kernel(value: Any) -> Any:
    """A name, ``{name = "rbf", gamma = 0.1}``, or a list of these."""
    if isinstance(value, list):
        return [_kernel(one) for one in value]
    if isinstance(value, str):
        return value
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str) or name not in WITH_PARAMETERS:
        raise ValueError(
            f"must be a name, or a table whose name is one of {', '.join(KERNELS)}; "
            f"found {value!r}"
        )
    given = {key: setting for key, setting in value.items() if key != "name"}
    standardize = given.pop("standardize", False)
    try:
        kernel = WITH_PARAMETERS[name](**given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name!r}: {error}") from None
    return kernels.Pipe(kernels.Standardizer(), kernel) if standardize else kernel


#: Keys of the table [data], which are also options, and of a table [views.NAME].
DATA = {
    **dict.fromkeys(("id", "label", "groups"), _of_type("text", str)),
    "task": _task,
    "drop": _names,
    "view_prefix": _of_type("boolean", bool),
}
VIEW = {"columns": _names, "drop": _names, "kernel": _kernel}
