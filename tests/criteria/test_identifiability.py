"""Remarks on weights that the data cannot determine."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave.kernels import DenseBank, center_and_scale
from kernelweave.protocols import weight_remarks


def random_bank(rng, p=4, n=20, extra=(), dtype=np.float64):
    parts = rng.standard_normal((p, n, 3))
    stack = parts @ parts.transpose(0, 2, 1)
    if extra:
        stack = np.concatenate([stack, [make(stack) for make in extra]])
    return DenseBank(
        center_and_scale(stack).astype(dtype), [f"k{i}" for i in range(len(stack))]
    )


def test_unrelated_kernels_need_no_remark(rng):
    bank = random_bank(rng)
    for learns_alpha in (False, True):
        assert weight_remarks(bank, np.full(4, 0.25), learns_alpha) == ()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("factor", [1.0, 1e-5, 7.0])
def test_kernels_that_agree_up_to_scale_are_named(rng, factor, dtype):
    bank = random_bank(rng, extra=[lambda stack: factor * stack[1]], dtype=dtype)
    (remark,) = weight_remarks(bank, np.full(5, 0.2), False)
    assert "'k1' and 'k4'" in remark
    assert "'k0'" not in remark
    assert "do not determine how they share" in remark


def test_one_remark_for_each_group(rng):
    bank = random_bank(
        rng, extra=[lambda s: s[1], lambda s: s[3], lambda s: 2.0 * s[1]]
    )
    groups = sorted(group.tolist() for group in bank.same_kernels())
    assert groups == [[1, 4, 6], [3, 5]]
    assert len(weight_remarks(bank, np.full(7, 1 / 7), False)) == 2


def test_no_remark_where_the_shared_weight_is_zero(rng):
    bank = random_bank(rng, extra=[lambda stack: stack[1]])
    assert weight_remarks(bank, np.array([1.0, 0, 0, 0, 0]), False) == ()


def test_kernels_with_other_diagonals_are_not_compared(rng, monkeypatch):
    bank = random_bank(rng)
    monkeypatch.setattr(bank, "apply", pytest.fail)
    assert bank.same_kernels() == []


def test_equal_diagonals_do_not_make_kernels_the_same(rng):
    flip = np.where(np.arange(20) % 2, 1.0, -1.0)
    stack = random_bank(rng).stack
    stack = np.stack([stack[0], flip[:, None] * stack[0] * flip, stack[0]])
    (group,) = DenseBank(stack).same_kernels()
    assert group.tolist() == [0, 2]


def test_kernels_that_only_resemble_each_other_are_two(rng):
    bank = random_bank(rng, extra=[lambda stack: stack[1] + 1e-3 * stack[2]])
    assert bank.same_kernels() == []


def test_zero_kernels_are_not_called_the_same(rng):
    nothing = [lambda stack: 0.0 * stack[0]] * 2
    bank = random_bank(rng, extra=nothing)
    assert bank.same_kernels() == []
    assert np.all(bank.identity_likeness(np.arange(bank.n_kernels))[-2:] == 0)


def test_likeness_is_a_cosine(rng):
    n = 20
    bank = random_bank(rng, extra=[lambda stack: np.eye(n)])
    likeness = bank.identity_likeness(np.arange(bank.n_kernels))
    assert likeness[-1] == pytest.approx(1.0, rel=1e-12)
    # measured over 21 seeds: 0.33 to 0.40
    assert np.all((likeness[:-1] > 0) & (likeness[:-1] < 0.9))


def test_a_few_rows_show_what_is_unlike_the_identity(rng, monkeypatch):
    """Rows that lack a kernel, a tenth of the few, do not hide an identity."""
    lacking = np.arange(300) % 3 == 0
    lacking[30:] = False
    partial = np.diag(np.where(lacking, 0.0, 1.0))
    stack = np.concatenate([random_bank(rng, n=300).stack, [np.eye(300), partial]])
    bank, read = DenseBank(stack), []

    def sizes(kernels, found=bank.sizes):
        read.extend(kernels)
        return found(kernels)

    monkeypatch.setattr(bank, "sizes", sizes)
    likeness = bank.identity_likeness(np.arange(6))
    assert read == [4, 5] and np.all(likeness[4:] > 0.95)
    # measured over 21 seeds: at most 0.18; those above, 0.98 or more
    assert np.all(likeness[:4] < 0.9)
    monkeypatch.setattr(bank, "restrict", pytest.fail)  # no row is read again
    np.testing.assert_array_equal(bank.identity_likeness(np.arange(6)), likeness)


def test_a_narrow_kernel_makes_a_learned_alpha_unidentifiable(rng):
    def narrow(stack):
        X = np.random.default_rng(3).standard_normal((20, 5))
        squared = np.sum((X[:, None] - X[None]) ** 2, axis=-1)
        return np.exp(-squared / 0.1**2)

    bank = random_bank(rng, extra=[narrow])
    (remark,) = weight_remarks(bank, np.full(5, 0.2), True)
    assert "alpha is not identifiable" in remark
    assert "'k4'" in remark
    assert weight_remarks(bank, np.full(5, 0.2), False) == ()


def test_an_alpha_that_won_is_reported(rng):
    bank = random_bank(rng)
    (remark,) = weight_remarks(bank, np.full(4, 1e-9), True)
    assert "outweighs every kernel" in remark


def test_other_array_libraries_say_the_same(xp_backend):
    bank = random_bank(np.random.default_rng(0), extra=[lambda stack: stack[2]])
    there = DenseBank(xp_backend.asarray(bank.stack), bank.names)
    weights = np.full(5, 0.2)
    assert weight_remarks(there, weights, True) == weight_remarks(bank, weights, True)
