"""Target matrices: the identities they are built on, for any class sizes."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave.fits.targets import (
    binary_target,
    checked_signs,
    checked_target,
    class_target,
    reduced_class_target,
    require_both_signs,
)

SIZES = [[1, 1], [7, 3], [2, 5, 9], [1, 1, 1, 40], [4] * 11]


def shuffled_codes(sizes, rng):
    return rng.permutation(np.repeat(np.arange(len(sizes)), sizes))


def shares(sizes):
    return np.sqrt(np.array(sizes) / np.sum(sizes))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_class_target_identities(sizes, rng):
    h = class_target(shuffled_codes(sizes, rng), len(sizes))
    n, q = sum(sizes), shares(sizes)
    assert np.allclose(h.sum(axis=0), 0, atol=1e-10)
    assert np.allclose(h @ q, 0, atol=1e-12)
    assert np.allclose(h.T @ h, n * (np.eye(len(q)) - np.outer(q, q)), atol=1e-10)


def test_class_target_entries_use_the_count_of_their_column():
    h = class_target(np.array([0, 1, 1, 1]), 2)
    inside, outside = np.sqrt(4 / 1) - np.sqrt(1 / 4), -np.sqrt(1 / 4)
    assert np.allclose(h[:, 0], [inside, outside, outside, outside])


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_reduced_target_loses_nothing(sizes, rng):
    codes = shuffled_codes(sizes, rng)
    k, n = len(sizes), sum(sizes)
    h = class_target(codes, k)
    reduced, rotation = reduced_class_target(codes, k)
    assert reduced.shape == (n, k - 1) and rotation.shape == (k, k - 1)
    assert np.allclose(rotation.T @ rotation, np.eye(k - 1), atol=1e-12)
    assert np.allclose(rotation.T @ shares(sizes), 0, atol=1e-12)
    assert np.allclose(reduced @ rotation.T, h, atol=1e-10)
    z = rng.normal(size=(n, n))
    m = z @ z.T + np.eye(n)
    full = np.trace(h.T @ np.linalg.solve(m, h))
    assert np.isclose(np.trace(reduced.T @ np.linalg.solve(m, reduced)), full)


@pytest.mark.parametrize("sizes", [[7, 3], [1, 12]], ids=str)
def test_two_classes_agree_with_the_binary_target(sizes, rng):
    codes = shuffled_codes(sizes, rng)
    a = binary_target(codes)
    assert a.shape == (sum(sizes), 1)
    assert np.isclose(a.sum(), 0)
    assert np.allclose(a[codes == 1], 1 / sizes[1])
    assert np.allclose(a[codes == 0], -1 / sizes[0])
    for column in class_target(codes, 2).T:
        cosine = column @ a[:, 0] / np.linalg.norm(column) / np.linalg.norm(a)
        assert np.isclose(abs(cosine), 1)


def test_order_of_samples_does_not_matter(rng):
    codes = shuffled_codes([3, 4, 5], rng)
    order = rng.permutation(len(codes))
    for make in (class_target, lambda c, k: reduced_class_target(c, k)[0]):
        assert np.array_equal(make(codes[order], 3), make(codes, 3)[order])


@pytest.mark.parametrize(
    ("codes", "k", "message"),
    [
        ([0, 2, 0], 3, r"from 0 to 2, got array\(\[0, 2\]\)"),
        ([0, 1, 3], 3, r"from 0 to 2, got array\(\[0, 1, 3\]\)"),
        ([-1, 0, 1], 2, r"got array\(\[-1,  0,  1\]\)"),
        ([0, 0], 1, "at least 2 classes, got 1"),
        ([0.0, 1.0], 2, r"integers from 0 to 1, got array\(\[0., 1.\]\)"),
        ([[0], [1]], 2, r"shape \(2, 1\)"),
        (np.array([], dtype=int), 2, r"shape \(0,\)"),
    ],
)
def test_bad_codes_are_named(codes, k, message):
    for make in (class_target, reduced_class_target):
        with pytest.raises(ValueError, match=message):
            make(np.asarray(codes), k)


SIGNS = np.array([[1.0, 1.0], [-1.0, 0.0], [1.0, 1.0]])
BAD = {
    "target, shape": (checked_target, (np.ones(3), 3), r"shape \(3, k\) .* got \(3,\)"),
    "target, NaN": (
        checked_target,
        (np.array([[1.0, 2.0], [3.0, np.nan]]), 2),
        "NaN or infinite values; the first is nan in row 1, column 1",
    ),
    "signs, no label": (
        checked_signs,
        (SIGNS, 3),
        r"\+1 or -1; row 1, column 1 has 0.0",
    ),
    "labels, value": (
        checked_signs,
        (np.array([1, 2]), 2, "labels", 1),
        r"labels must be \+1 or -1; row 1 has 2.0",
    ),
    "labels, shape": (
        checked_signs,
        (SIGNS, 3, "labels", 1),
        r"labels .* \(3,\) .*entry",
    ),
    "one sign": (
        require_both_signs,
        (SIGNS,),
        r"column 1 of the signs .* 2 of \+1 and 0",
    ),
}


@pytest.mark.parametrize(("check", "given", "message"), BAD.values(), ids=BAD)
def test_bad_targets_and_signs_are_named(check, given, message):
    with pytest.raises(ValueError, match=message):
        check(*given)


def test_signs_may_be_absent_where_that_is_allowed():
    assert np.array_equal(checked_signs(SIGNS.astype(int), 3, zeros=True), SIGNS)
