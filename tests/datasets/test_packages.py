"""Assays of an R package: patients without a sample have rows of NaN."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernelweave.datasets import _packages, fetch_views, tables
from kernelweave.datasets._packages import (
    IN_DEBIAN,
    IN_PACKAGE,
    LIBRARY_VARIABLES,
    Cells,
    multi_assay,
)
from kernelweave.datasets._sources import DATA_VARIABLE
from kernelweave.exceptions import MissingDataError

PACKAGE, FILE, read_file = IN_PACKAGE["miniACC"]


@dataclass
class Slots:
    """Stands for an R object with these slots, which R keeps as attributes."""

    slots: dict[str, Any]


@dataclass
class Named:
    """Stands for a matrix (features, samples) with names."""

    values: np.ndarray
    names: list[list[str]]


@dataclass
class Environment:
    """Stands for an environment of these variables."""

    variables: dict[str, Any]


def to_r():
    """How each of these becomes an R object."""
    from rdata.conversion.to_r import build_r_object
    from rdata.parser import RObjectType

    def slots(one, converter):
        owned = converter.convert_to_r_attributes(one.slots)
        return build_r_object(RObjectType.VEC, value=[], attributes=owned)

    def named(one, converter):
        attributes = converter.convert_to_r_attributes(
            {
                "dim": np.array(one.values.shape),
                "dimnames": [np.array(names) for names in one.names],
            }
        )
        values = np.ravel(one.values, order="F")
        return build_r_object(RObjectType.REAL, value=values, attributes=attributes)

    def environment(one, converter):
        bucket = converter.convert_to_r_attributes(one.variables)
        empty = build_r_object(RObjectType.NILVALUE)
        table = build_r_object(RObjectType.VEC, value=[empty, bucket])
        return build_r_object(RObjectType.ENV, value=SimpleNamespace(hash_table=table))

    return {Slots: slots, Named: named, Environment: environment}


def study(wrap=lambda matrix: matrix, samples=("s9", "s7")):
    """Two assays of three patients; the first assay is held as ``wrap`` says."""
    rna = Named(np.array([[1.0, 2.0], [3.0, 4.0]]), [["g1", "g2"], list(samples)])
    protein = Named(np.array([[5.0, 6.0, 7.0]]), [["p1"], ["t1", "t2", "t3"]])
    sample_map = {
        "assay": np.array(["rna", "rna", "protein", "protein", "protein"]),
        "primary": np.array(["c", "a", "b", "a", "c"]),
        "colname": np.array(["s9", "s7", "t1", "t2", "t3"]),
    }
    clinical = {"stage": np.array(["ii", None, "iv"], dtype=object)}
    clinical["vital_status"] = np.array([0, 1, 0])
    columns = {"rownames": np.array(["a", "b", "c"]), "listData": clinical}
    return Slots(
        {
            "ExperimentList": Slots(
                {"listData": {"rna": wrap(rna), "protein": protein}}
            ),
            "colData": Slots(columns),
            "sampleMap": Slots({"listData": sample_map}),
        }
    )


def in_slots(matrix):
    return Slots({"assays": Slots({"data": Slots({"listData": [matrix]})})})


def in_environment(matrix):
    field = {".self": 0, ".->data": Slots({"listData": [matrix]})}
    return Slots({"assays": Slots({".xData": Environment(field)})})


def parsed(one):
    rdata = pytest.importorskip("rdata")
    return rdata.conversion.convert_python_to_r_object(one, constructor_dict=to_r())


@pytest.mark.parametrize("wrap", [in_slots, in_environment])
def test_assays_are_views_of_the_patients(wrap):
    found = multi_assay(parsed(study(wrap)))
    assert found.ids.tolist() == ["a", "b", "c"]
    assert found.names == ["rna_g1", "rna_g2", "protein_p1"]
    expected = [[2, 4, 6], [np.nan, np.nan, 5], [1, 3, 7]]
    np.testing.assert_array_equal(found.values, expected)
    assert found.texts["stage"].tolist() == ["ii", "", "iv"]
    assert found.texts["vital_status"].tolist() == ["0", "1", "0"]
    assert found.texts["label"].tolist() == ["alive", "dead", "alive"]


def test_two_samples_of_a_patient_are_refused():
    twice = parsed(study(samples=("s9", "s9")))
    with pytest.raises(ValueError, match="'rna' has several samples of patient 'c'"):
        multi_assay(twice)


def test_file_of_an_installed_package(monkeypatch, tmp_path):
    rdata = pytest.importorskip("rdata")
    path = tmp_path / PACKAGE / FILE
    path.parent.mkdir(parents=True)
    rdata.write_rda(path, {"acc": study(in_slots)}, constructor_dict=to_r())
    for variable in LIBRARY_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(_packages, "LIBRARIES", ())
    assert list(_packages.package_folders(PACKAGE)) == []
    monkeypatch.setenv("R_LIBS_USER", str(tmp_path))
    assert list(_packages.package_folders(PACKAGE)) == [tmp_path / PACKAGE]
    assert read_file(path).values.shape == (3, 3)
    with pytest.raises(ValueError, match=r"997 numeric columns.*found has 3"):
        fetch_views("miniACC")
    monkeypatch.delenv("R_LIBS_USER")
    monkeypatch.setenv(DATA_VARIABLE, str(path.parent))  # the file alone is enough
    with pytest.raises(ValueError, match=r"997 numeric columns.*found has 3"):
        fetch_views("miniACC")
    monkeypatch.delenv(DATA_VARIABLE)
    with pytest.raises(MissingDataError, match=IN_DEBIAN["miniACC"]) as caught:
        fetch_views("miniACC")
    assert "\n" not in str(caught.value)


def test_the_real_assays():
    pytest.importorskip("rdata")
    try:
        bunch = fetch_views("miniACC", as_frame=False)  # other numbers would warn
    except MissingDataError as error:
        pytest.skip(str(error))
    assert bunch.data.shape == (92, 997)
    assert np.bincount(bunch.target).tolist() == [58, 34]
    assert bunch.target_names.tolist() == ["alive", "dead"]
    assert bunch.ids[0] == "TCGA-OR-A5J1"
    gaps = [np.isnan(bunch.data[:, own]) for _, _, own in bunch.views]
    assert [own.all(axis=1).sum() for own in gaps] == [13, 2, 46, 2, 12]
    assert all((own.any(axis=1) == own.all(axis=1)).all() for own in gaps)


def test_patients_without_the_target_are_left_out(monkeypatch):
    texts = {"label": np.array(["x", "y", "x"]), "gender": np.array(["f", "", "m"])}
    values = np.array([[1.0, 2.0], [3.0, 4.0], [np.nan, 5.0]])
    cells = Cells(["rna_1", "cnv_1"], values, texts, np.array(["a", "b", "c"]))
    monkeypatch.setattr(tables, "find_cells", lambda source, download: cells)
    bunch = fetch_views("miniACC", target="gender", as_frame=False)
    assert (bunch.ids.tolist(), bunch.target.tolist()) == (["a", "c"], [0, 1])
    np.testing.assert_array_equal(bunch.data, values[[0, 2]])
    assert len(fetch_views("miniACC").ids) == 3
