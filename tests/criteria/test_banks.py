"""Every criterion gives the same results through every bank."""

from __future__ import annotations

import pathlib
import re
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose

import kernelweave
from kernelweave._array import to_numpy
from kernelweave.criteria.alignment import Alignment
from kernelweave.criteria.fisher import BlockFisher, Fisher, WithinFisher
from kernelweave.criteria.margin import Margin, SubspaceMargin
from kernelweave.fits.targets import class_target
from kernelweave.kernels import DenseBank, FeatureBank, Linear
from kernelweave.kernels.banks.dense import (
    KernelBank,
    combine_in_double,
    host_stack,
)
from kernelweave.kernels.banks.lazy import KernelGroup, OnTheFlyBank
from kernelweave.kernels.base import PairwiseRows
from kernelweave.kernels.centering import center_tiles
from kernelweave.protocols import Bank, require_bank
from kernelweave.solvers import certify, solve
from kernelweave.solvers.local.subspace import PlainSubspaceMargin
from kernelweave.weights import SignedSum, Simplex

N, WIDTHS = 24, [3, 5, 4]
CODES = np.arange(N) % 3
SIGNS = np.where(CODES == 0, 1.0, -1.0)[:, None]
PARTLY = np.where(np.arange(N)[:, None] < 18, SIGNS, 0.0)


class LazyBank(KernelBank):
    """Computes each kernel from its features on request."""

    def __init__(self, Z):
        super().__init__(Z, len(WIDTHS), Z.shape[0])
        self.Z = Z

    def kernel(self, i):
        part = self.Z[:, sum(WIDTHS[:i]) : sum(WIDTHS[: i + 1])]
        return part @ part.T


class Only:
    """A bank that has the parts of the protocol, and no others."""

    def __init__(self, whole):
        self.whole = whole

    def __getattr__(self, name):
        if name not in {*Bank.__annotations__, *vars(Bank)}:
            raise AttributeError(f"{name!r} is not part of a bank")
        part = getattr(self.whole, name)
        if name in ("restrict", "subset"):
            return lambda which: Only(part(which))
        return part


def features(rng):
    """Centred features whose kernels have trace N."""
    Z = rng.normal(size=(N, sum(WIDTHS)))
    Z[:, 0] += 2.0 * SIGNS[:, 0]
    Z -= Z.mean(axis=0)
    parts = np.split(Z, np.cumsum(WIDTHS)[:-1], axis=1)
    return np.hstack([part * np.sqrt(N / np.sum(part**2)) for part in parts])


def on_the_fly(Z):
    """Linear kernels of the features, which are centred and scaled already."""
    ends = np.cumsum([0, *WIDTHS])
    groups = [
        KernelGroup(PairwiseRows("dot", Z[:, a:b]), [(i, Linear())], f"view {i}")
        for i, (a, b) in enumerate(pairwise(ends.tolist()))
    ]
    names = [group.view for group in groups]
    tiles = OnTheFlyBank(groups, names, Z.shape[0], Z)
    return tiles.centred(list(center_tiles(tiles, [0.0] * len(WIDTHS))))


BANKS = {
    "on the fly": on_the_fly,
    "dense": lambda Z: DenseBank(_stack(Z)),
    "features": lambda Z: FeatureBank(Z, WIDTHS),
    "lazy": LazyBank,
    "protocol": lambda Z: Only(LazyBank(Z)),
}
CRITERIA = {
    "fisher": lambda bank: Fisher(bank, class_target(CODES, 3), 0.5),
    "fisher, learned": lambda bank: Fisher(bank, class_target(CODES, 3), "learn"),
    "block": lambda bank: BlockFisher(bank, class_target(CODES, 3), 0.5),
    "within": lambda bank: WithinFisher(bank, class_target(CODES, 3), 0.5, CODES),
    "margin, l1": lambda bank: Margin(bank, SIGNS, "l1", 0.3),
    "margin, l2": lambda bank: Margin(bank, PARTLY, "l2", 1.0),
    "margin, learned": lambda bank: Margin(bank, SIGNS, "l2", "learn"),
    "alignment": lambda bank: Alignment(bank, SIGNS),
    "alignment, some rows": lambda bank: Alignment(bank, PARTLY, centred=False),
    "subspace margin": lambda bank: SubspaceMargin(bank, SIGNS, 0.5, 2.0),
}


def _stack(Z):
    lazy = LazyBank(Z)
    return np.stack([lazy.kernel(i) for i in range(lazy.n_kernels)])


every_bank = pytest.mark.parametrize("kind", BANKS)
every_criterion = pytest.mark.parametrize("name", CRITERIA)


@every_bank
def test_banks_follow_the_protocol(kind, rng, xp_backend):
    """All products agree with those of the explicit matrices."""
    Z = features(rng)
    stack, b = _stack(Z), rng.normal(size=(N, 2))
    held = _stack(Z) if kind == "dense" else Z
    make = {**BANKS, "dense": DenseBank}[kind]
    bank = make(xp_backend.asarray(held))
    require_bank(bank, "this test")
    rows, some = np.array([1, 2, 5, 20]), np.array([2, 0])
    views = [
        (bank, stack),
        (bank.restrict(rows), stack[:, rows][:, :, rows]),
        (bank.subset(some), stack[some]),
        (bank.subset(some).restrict(rows), stack[some][:, rows][:, :, rows]),
    ]
    for view, kernels in views:
        p, n = len(kernels), kernels.shape[1]
        assert (view.n_kernels, view.n_samples, view.n_rows) == (p, n, n)
        w, c = rng.normal(size=p), b[:n]
        there = xp_backend.asarray(c)
        found = {
            "combine": (view.combine(w), np.tensordot(w, kernels, 1)),
            "apply": (view.apply(there), kernels @ c),
            "quad": (view.quad(there), np.einsum("nk,pnk->p", c, kernels @ c)),
            "kernel": (view.kernel(1), kernels[1]),
            "diagonals": (view.diagonals(), np.einsum("pnn->pn", kernels)),
            "sizes": (view.sizes(np.arange(p)), np.linalg.norm(kernels, axis=(1, 2))),
            "double": (combine_in_double(view, w), np.tensordot(w, kernels, 1)),
            "stack": (host_stack(view), kernels),
        }
        for name, (ours, theirs) in found.items():
            assert_allclose(to_numpy(ours), theirs, atol=1e-10, err_msg=name)
        for part, block in view.row_blocks():
            assert_allclose(to_numpy(block), kernels[:, part, :], atol=1e-10)


@every_criterion
@pytest.mark.parametrize("kind", ["features", "lazy", "on the fly"])
def test_values_derivatives_and_certificates_agree(name, kind, rng):
    Z = features(rng)
    dense, other = CRITERIA[name](BANKS["dense"](Z)), CRITERIA[name](BANKS[kind](Z))
    w = rng.dirichlet(np.ones(dense.n_weights))
    expected, found = dense.evaluate(w), other.evaluate(w)
    assert found.value == pytest.approx(expected.value, rel=1e-7)
    assert_allclose(found.gradient, expected.gradient, rtol=1e-5, atol=1e-7)
    assert_allclose(  # of a value that ends an iteration; measured: up to 2.4e-4
        found.hessian,
        expected.hessian,
        rtol=1e-3,
        atol=1e-3 * np.max(np.abs(expected.hessian)),
    )
    # A dual point gives the same bounds with either bank.
    for a, b in zip(
        certify(other, Simplex(), w, expected.coef),
        certify(dense, Simplex(), w, expected.coef),
        strict=True,
    ):
        assert a == pytest.approx(b, rel=1e-9, abs=1e-9)
    assert other.remarks(w) == dense.remarks(w)


@every_criterion
def test_problems_are_solved_with_a_certificate(name, rng):
    Z = features(rng)
    found = {
        kind: solve(CRITERIA[name](make(Z)), Simplex(), tol=1e-7)
        for kind, make in BANKS.items()
    }
    for kind, solution in found.items():
        assert solution.converged, kind
        assert solution.value == pytest.approx(found["dense"].value, rel=1e-6), kind


@every_bank
def test_signed_weights_and_local_searches_take_any_bank(kind, rng):
    Z = features(rng)
    dense, bank = BANKS["dense"](Z), BANKS[kind](Z)
    scores = rng.normal(size=3)
    assert SignedSum(bank).support(scores) == pytest.approx(
        SignedSum(dense).support(scores), rel=1e-8
    )
    below = PlainSubspaceMargin(bank, SIGNS, 0.5, 2.0).minorant()
    above = PlainSubspaceMargin(dense, SIGNS, 0.5, 2.0).minorant()
    assert_allclose(below.bank.stack, above.bank.stack, atol=1e-10)


class FourProducts:
    """What every criterion uses, but none of what the kernels are like."""

    def combine(self, weights):
        return np.eye(N)

    apply = quad = restrict = combine


@pytest.mark.parametrize("bank", [np.zeros((3, N, N)), None, FourProducts()])
@pytest.mark.parametrize("name", [*CRITERIA, "signed sum"])
def test_what_is_no_bank_is_refused_by_name(name, bank):
    problem = {**CRITERIA, "signed sum": SignedSum}[name]
    message = rf"\w+ needs a bank .*; {type(bank).__name__} lacks 'n_kernels', .*others"
    with pytest.raises(TypeError, match=message):
        problem(bank)


def test_nothing_above_the_kernels_looks_inside_a_bank():
    source = pathlib.Path(kernelweave.__file__).parent
    found = []
    for path in source.rglob("*.py"):
        room = path.relative_to(source).parts[0]
        looks = re.search(r"bank\.(stack|features|widths)\b", path.read_text("utf-8"))
        if looks and room != "kernels":
            found.append(str(path.relative_to(source)))
    assert found == []


def test_certificates_read_the_diagonals_of_kernels_once(rng, monkeypatch):
    bank = LazyBank(features(rng))
    criterion, reads = CRITERIA["fisher"](bank), []
    weights = Simplex().start(3)
    coef = criterion.evaluate(weights).coef
    certify(criterion, Simplex(), weights, coef)
    kernel = LazyBank.kernel
    monkeypatch.setattr(
        LazyBank, "kernel", lambda self, i: reads.append(i) or kernel(self, i)
    )
    certify(criterion, Simplex(), weights, coef)  # products are known already
    assert not reads
    part = np.stack([bank.kernel(i)[:6, :6] for i in range(3)])
    expected = DenseBank(part).rounded_traces()
    assert_allclose(bank.restrict(np.arange(6)).rounded_traces(), expected)
