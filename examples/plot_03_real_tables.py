"""
Real tables
===========

Text, categories, dates and gaps need no preparation: the kernel ``"auto"`` reads
columns of any kind, and a ``Pipe`` hands its view to any scikit-learn transformer.
"""

# %%
# A table
# -------
# 300 orders: what was paid and when, how it was shipped, and a comment by the customer.
# The question is whether the order is returned. Some entries are missing.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import train_test_split

from kernelweave import MultipleKernelFDA
from kernelweave.inspection import KernelWeightsDisplay
from kernelweave.kernels import Pipe

rng = np.random.default_rng(0)
n = 300
returned = rng.integers(2, size=n)
comments = [["great", "as shown", "quick"], ["too small", "broken", "late"]]
orders = pd.DataFrame(
    {
        "price": rng.lognormal(3 + 0.4 * returned, 0.6),
        "ordered": pd.Timestamp("2024-01-01")
        + pd.to_timedelta(rng.integers(0, 365, n), unit="D"),
        "carrier": rng.choice(["land", "air", "pick-up"], n),
        "gift": rng.random(n) < 0.2 + 0.2 * returned,
        "comment": [
            rng.choice(comments[k if rng.random() < 0.8 else 1 - k]) for k in returned
        ],
    }
)
orders.loc[rng.choice(n, 20, replace=False), "price"] = np.nan
orders.loc[rng.choice(n, 10, replace=False), "carrier"] = None
orders.head()

# %%
# Views of any kind
# -----------------
# "auto" fills the gaps of numbers with the median of the training rows and marks them;
# a gap in a category is one more category.

views = [
    ("price", "auto", ["price"]),
    ("shipping", "auto", ["ordered", "carrier", "gift"]),
    ("comment", Pipe(TfidfVectorizer(), ["linear", "rbf"]), "comment"),
]
train, test, y_train, y_test = train_test_split(orders, returned, random_state=0)
model = MultipleKernelFDA(views).fit(train, y_train)
print(f"accuracy on new rows: {model.score(test, y_test):.2f}")
pd.DataFrame(model.column_summary_)

# %%
# Which view matters
# ------------------
# The comment does, and the price. In the view on shipping, only one column of three is
# related to returns, whether the order was a gift, and only loosely.

display = KernelWeightsDisplay.from_estimator(model)
plt.show()
