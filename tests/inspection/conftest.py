"""Fitted models for the tests in this folder."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_wine

from kernelweave import MultipleKernelFDA
from kernelweave.datasets import fetch_views


@pytest.fixture(autouse=True)
def drawable():
    pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(scope="session")
def cancer():
    """Two classes with names, three views; every third row."""
    bunch = fetch_views("breast_cancer", as_frame=False)
    return bunch.data[::3], bunch.target_names[bunch.target][::3], bunch.views


@pytest.fixture(scope="session")
def cancer_model(cancer):
    X, y, views = cancer
    return MultipleKernelFDA(views, norm=1, cv=None).fit(X, y)


@pytest.fixture(scope="session")
def wine():
    """Three classes with names, one view."""
    bunch = load_wine()
    return bunch.data, np.asarray(bunch.target_names)[bunch.target]


@pytest.fixture(scope="session")
def wine_model(wine):
    X, y = wine
    return MultipleKernelFDA(norm=2, alpha=0.1, cv=None).fit(X, y)
