"""The plot shows the records it is given."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave.inspection import ViewSharesDisplay


def make_rows(n_views):
    return [
        {
            "view": f"view {v}",
            "share": (v + 1) / 100,
            "low": v / 100,
            "high": (v + 3) / 100,
            "selected": 0.5,
            "n_resamples": 10,
        }
        for v in range(n_views)
    ]


def labels(display):
    return [label.get_text() for label in display.ax_.get_yticklabels()]


def test_bars_and_intervals():
    display = ViewSharesDisplay(rows=make_rows(4)).plot()
    assert labels(display) == ["view 3", "view 2", "view 1", "view 0"]
    widths = [bar.get_width() for bar in display.bars_]
    np.testing.assert_allclose(widths, [4, 3, 2, 1])
    ends = display.intervals_.lines[2][0].get_segments()
    np.testing.assert_allclose(
        [end[:, 0] for end in ends], [[3, 6], [2, 5], [1, 4], [0, 3]]
    )
    assert [text.get_text() for text in display.texts_] == ["50 %"] * 4
    # useless views are selected in many halves as well, so none stands out
    assert {text.get_fontweight() for text in display.texts_} == {"normal"}
    assert len({bar.get_facecolor() for bar in display.bars_}) == 1


def test_pvalues_replace_the_selection():
    rows = make_rows(2)
    display = ViewSharesDisplay(rows=rows, pvalues={"view 0": 0.5, "view 1": 0.025})
    display.plot()
    assert [text.get_text() for text in display.texts_] == ["0.025", "0.5"]
    assert [text.get_fontweight() for text in display.texts_] == ["bold", "normal"]


def test_many_views():
    display = ViewSharesDisplay(rows=make_rows(40)).plot(max_rows=5)
    assert labels(display)[-1] == "35 more views"
    assert len(display.bars_) == 5
    with pytest.raises(ValueError, match="max_rows must be an int >= 1; got 0"):
        display.plot(max_rows=0)


def test_from_estimator(cancer, cancer_model):
    X, y, _ = cancer
    display = ViewSharesDisplay.from_estimator(
        cancer_model, X, y, n_resamples=4, n_decoys=2, random_state=0
    )
    assert labels(display)[0] == "worst"
    assert set(display.pvalues) == {"mean", "error", "worst"}
    assert "95 % intervals" in display.ax_.get_title(loc="left")
