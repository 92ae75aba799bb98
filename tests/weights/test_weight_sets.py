"""Each weight set, checked against its support function."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kernelweave.weights import GroupBall, LpBall, Simplex, Uniform, WeightSet

#: Functions from the number of weights to the set.
SETS = {
    "Simplex": lambda p: Simplex(),
    "LpBall(1.01)": lambda p: LpBall(1.01),
    "LpBall(1.5)": lambda p: LpBall(1.5),
    "LpBall(2)": lambda p: LpBall(2),
    "LpBall(50)": lambda p: LpBall(50),
    "LpBall(inf)": lambda p: LpBall(np.inf),
    "GroupBall, pairs": lambda p: GroupBall(np.arange(p) // 2),
    "GroupBall, three groups": lambda p: GroupBall([i % 3 for i in range(p)]),
    "Uniform": lambda p: Uniform(),
}
every_set = pytest.mark.parametrize("of_size", SETS.values(), ids=SETS)

scores_of_any_sign = hnp.arrays(
    float, st.integers(1, 12), elements=st.floats(-1e6, 1e6, allow_subnormal=False)
)


def points_of(weight_set: WeightSet, p: int, rng: np.random.Generator) -> np.ndarray:
    """Random points of the set, including interior points and vertices, (r, p)."""
    if isinstance(weight_set, Uniform):
        return weight_set.start(p)[None, :]
    sizes = [rng.exponential(size=p) ** power for power in (0.1, 1.0, 5.0)]
    points = [weight_set.scale(size) for size in sizes]
    points.extend(weight_set.scale(corner) for corner in np.eye(p))
    if not isinstance(weight_set, Simplex):
        points.extend([np.zeros(p), 0.3 * points[0]])
    return np.array(points)


@every_set
def test_follows_the_protocol(of_size):
    weight_set = of_size(3)
    assert isinstance(weight_set, WeightSet)
    assert type(weight_set).__name__ in repr(weight_set)


@every_set
@given(scores=scores_of_any_sign, seed=st.integers(0, 2**32 - 1))
def test_support_is_an_upper_bound(of_size, scores, seed):
    weight_set = of_size(len(scores))
    points = points_of(weight_set, len(scores), np.random.default_rng(seed))
    size = float(np.max(np.abs(scores)))
    highest = float(np.max(points @ scores))
    assert highest <= weight_set.support(scores) + 1e-9 * size * len(scores)


@every_set
@given(scores=scores_of_any_sign)
def test_support_is_attained_inside_the_set(of_size, scores):
    weight_set = of_size(len(scores))
    best = weight_set.maximizer(scores)
    assert best.shape == scores.shape
    assert weight_set.violation(best) <= 1e-12
    size = float(np.max(np.abs(scores)))
    assert best @ scores == pytest.approx(
        weight_set.support(scores), rel=1e-9, abs=1e-9 * size
    )


@every_set
def test_support_is_homogeneous(of_size):
    weight_set = of_size(3)
    scores = np.array([0.2, 3.0, 1.0])
    expected = weight_set.support(scores)
    for factor in (1e-150, 1e-6, 1.0, 1e6, 1e150):
        scaled = weight_set.support(factor * scores)
        assert scaled == pytest.approx(factor * expected, rel=1e-12), factor


@every_set
def test_start_is_inside_with_no_zero(of_size):
    for p in (1, 2, 7, 1000):
        weight_set = of_size(p)
        start = weight_set.start(p)
        assert start.shape == (p,)
        assert np.all(start > 0), p
        assert weight_set.violation(start) <= 1e-12, p


@every_set
@given(
    weights=hnp.arrays(float, st.integers(1, 12), elements=st.floats(1e-6, 1e6)),
    factor=st.floats(1e-3, 1e3),
)
def test_scale_reaches_the_set_and_forgets_the_size(of_size, weights, factor):
    weight_set = of_size(len(weights))
    scaled = weight_set.scale(weights)
    assert weight_set.violation(scaled) <= 1e-12
    np.testing.assert_allclose(weight_set.scale(factor * weights), scaled, rtol=1e-9)
    if not isinstance(weight_set, Uniform):
        ratio = scaled / weights
        np.testing.assert_allclose(ratio, ratio[0], rtol=1e-9)


@every_set
def test_violation_measures_what_is_wrong(of_size):
    weight_set = of_size(4)
    start = weight_set.start(4)
    negative = start.copy()
    negative[2] = -0.25
    assert weight_set.violation(negative) >= 0.25
    assert weight_set.violation(start + 0.5) >= 0.4
    assert np.isnan(weight_set.violation(start * np.nan))


def test_only_the_balls_contain_smaller_weights():
    half = 0.5 * np.array([0.5, 0.5])
    assert Simplex().violation(half) == pytest.approx(0.5)
    assert Uniform().violation(half) == pytest.approx(0.25)
    assert LpBall(2).violation(half) == 0.0


@pytest.mark.parametrize("norm", [1, 1.0, 0.5, 0, -2, float("nan"), -np.inf, "2", None])
def test_a_norm_that_is_no_norm_is_named(norm):
    with pytest.raises(ValueError, match=r"norm > 1, got .*Simplex\(\) for norm 1"):
        LpBall(norm)


def test_balls_tend_to_the_simplex_and_to_the_cube():
    scores = np.array([0.1, 2.0, 0.7])
    # norms of three scores differ by a factor of 3^(1/1000) at most
    assert LpBall(1.001).support(scores) == pytest.approx(
        Simplex().support(scores), rel=1.1e-3
    )
    assert LpBall(1000).support(scores) == pytest.approx(np.sum(scores), rel=1.1e-3)


@given(scores=scores_of_any_sign)
def test_one_group_is_the_ball_and_single_kernels_are_the_simplex(scores):
    p = len(scores)
    one, single = GroupBall(["all"] * p), GroupBall(range(p))
    for group, limit in ((one, LpBall(2)), (single, Simplex())):
        highest = max(limit.support(scores), 0.0)  # a ball contains zero
        assert group.support(scores) == pytest.approx(highest, rel=1e-12)
        assert group.maximizer(scores) @ scores == pytest.approx(highest, rel=1e-12)
        np.testing.assert_allclose(group.start(p), limit.start(p), rtol=1e-12)


def test_groups_have_names_and_norms():
    ball = GroupBall(["image", "text", "image"])
    assert ball.names == ["image", "text"]
    norms = ball.group_norms(np.array([0.3, 0.5, 0.4]))
    assert norms == {"image": pytest.approx(0.5), "text": 0.5}
    assert ball.violation(np.array([0.3, 0.6, 0.4])) == pytest.approx(0.1)
    assert ball.support(np.array([3.0, 4.9, 4.0])) == pytest.approx(5.0)
    assert repr(ball) == "GroupBall(3 weights in 2 groups)"


@pytest.mark.parametrize(
    ("groups", "error", "words"),
    [
        ("image", TypeError, "one label per weight.*got 'image'"),
        (3, TypeError, "one label per weight.*got 3"),
        ([[0, 1], [2]], TypeError, r"not the members of each group; got \[0, 1\]"),
        ([], ValueError, "it is empty"),
    ],
)
def test_groups_that_are_no_labels_are_refused(groups, error, words):
    with pytest.raises(error, match=words):
        GroupBall(groups)


def test_labels_for_another_number_of_weights_are_refused():
    with pytest.raises(ValueError, match=r"labels for 2 weights, but there are 3.*one"):
        GroupBall(["a", "b"]).start(3)
