"""A file of settings, ``--views views.toml``: what the options cannot say."""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path
from typing import Any

from kernelweave import kernels
from kernelweave.cli.read import suggest
from kernelweave.kernels.spec import KERNELS

#: Keys of the table [data], which are also options, and the types of their values.
DATA: dict[str, type] = {
    **dict.fromkeys(("id", "label", "task", "groups"), str),
    "drop": list,
    "view_prefix": bool,
}
#: Keys of the table [model] that are also options.
MODEL_OPTIONS = ("norm", "alpha", "class_weight", "missing", "kernel")
#: Keys of a table [views.NAME].
VIEW = ("columns", "drop", "kernel")
#: Kernels that can be written with parameters.
WITH_PARAMETERS = {**KERNELS, **{kind.__name__: kind for kind in KERNELS.values()}}


def read_settings(options: argparse.Namespace, parameters: list[str]) -> None:
    """Fill the options that were not given with what the file ``options.views`` says.

    Adds ``options.view_settings``, a dict from the name of a view to its ``columns``,
    ``drop`` and ``kernel``, and ``options.parameters``, those of the estimator that
    have no option.

    Parameters
    ----------
    options : argparse.Namespace
        Their defaults are None, or an empty list.
    parameters : list of str
        Names of all parameters of the estimators.
    """
    options.view_settings, options.parameters = {}, {}
    if options.views is None:
        return
    path = Path(options.views)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"there is no file {options.views!r}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a TOML file: {error!s:.200}") from None
    _check_keys(f"{path}", content, ["data", "model", "views"])
    for table in content:
        if not isinstance(content[table], dict):
            raise ValueError(f"{path}: {table!r} must be a table: [{table}]")
    _fill_data(f"{path}: [data]", content.get("data", {}), options)
    _fill_model(f"{path}: [model]", content.get("model", {}), options, parameters)
    for name, view in content.get("views", {}).items():
        where = f"{path}: [views.{name}]"
        if not isinstance(view, dict):
            raise ValueError(f"{where} must be a table, found {view!r}")
        _check_keys(where, view, VIEW)
        found = dict(view)
        for key in ("columns", "drop"):
            if key in view:
                found[key] = _names(where, key, view[key])
        if "kernel" in view:
            found["kernel"] = _kernel(where, view["kernel"])
        options.view_settings[name] = found


def _check_keys(where: str, table: dict[str, Any], known: Any) -> None:
    for key in table:
        if key not in known:
            hint = suggest(key, list(known)).replace("the columns are", "there are")
            raise ValueError(f"{where}: {key!r} is not a key; {hint}")


def _fill_data(where: str, table: dict[str, Any], options: argparse.Namespace) -> None:
    _check_keys(where, table, DATA)
    for key, value in table.items():
        if not isinstance(value, DATA[key]):
            kind = DATA[key].__name__
            raise ValueError(f"{where}: {key} must be a {kind}, found {value!r}")
        if key == "task" and value not in ("classification", "regression"):
            raise ValueError(
                f"{where}: task must be 'classification' or 'regression', found "
                f"{value!r}"
            )
        if key == "drop":
            value = _names(where, key, value)
        if not getattr(options, key, None):
            setattr(options, key, value)


def _fill_model(
    where: str,
    table: dict[str, Any],
    options: argparse.Namespace,
    parameters: list[str],
) -> None:
    _check_keys(where, table, sorted({*MODEL_OPTIONS, *parameters}))
    for key, value in table.items():
        if key == "kernel":
            value = _kernel(where, value)
        if key not in MODEL_OPTIONS:
            options.parameters[key] = value
        elif getattr(options, key) is None:
            setattr(options, key, float(value) if type(value) is int else value)


def _names(where: str, key: str, value: Any) -> list[str]:
    if isinstance(value, str):
        value = [value]
    if not (isinstance(value, list) and all(isinstance(v, str) for v in value)):
        raise ValueError(f"{where}: {key} must be a list of names, found {value!r}")
    return value


def _kernel(where: str, value: Any) -> Any:
    """A name, ``{name = "rbf", gamma = 0.1}``, or a list of these."""
    if isinstance(value, list):
        return [_kernel(where, one) for one in value]
    if isinstance(value, str):
        return value
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str) or name not in WITH_PARAMETERS:
        raise ValueError(
            f"{where}: kernel must be a name, or a table with a name, one of "
            f"{', '.join(KERNELS)}; found {value!r}"
        )
    given = {key: setting for key, setting in value.items() if key != "name"}
    standardize = given.pop("standardize", False)
    try:
        kernel = WITH_PARAMETERS[name](**given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: kernel {name!r}: {error}") from None
    return kernels.Pipe(kernels.Standardizer(), kernel) if standardize else kernel
