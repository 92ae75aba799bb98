"""
Getting started: three views of tumours
=======================================

Learn one classifier from three views of the same tumours, the weight of each view, and
a proof that the weights are optimal. This is the code of the page "Getting started",
with its pictures.
"""

# %%
# The data and the model
# ----------------------
# Each tumour is described by ten measurements of its cell nuclei, in three ways: their
# mean, the standard error of the mean, and the worst values in the picture.
#
# The kernel ``"auto"`` of a view stands for a linear kernel and Gaussian kernels of
# several widths. Nothing has to be tuned: the norm of the weights and the
# regularisation are chosen by their leave-one-out error, which has a closed form.

from sklearn.model_selection import train_test_split

from kernelweave import MultipleKernelFDA
from kernelweave.datasets import fetch_views

cancer = fetch_views("breast_cancer")
X_train, X_test, y_train, y_test = train_test_split(
    cancer.data, cancer.target, stratify=cancer.target, random_state=0
)
model = MultipleKernelFDA(
    views=[
        ("mean", "auto", slice(0, 10)),
        ("error", "auto", slice(10, 20)),
        ("worst", "auto", slice(20, 30)),
    ]
).fit(X_train, y_train)
print(f"expected {model.cv_score_:.2f} ± {model.cv_standard_error_:.2f}")
print(f"accuracy {model.score(X_test, y_test):.2f}")

# %%
# The weights
# -----------
# Dark bars show the views, light bars their kernels.

from kernelweave.inspection import KernelWeightsDisplay, weights_table

rows = weights_table(model)  # pandas.DataFrame(rows) makes a frame
display = KernelWeightsDisplay.from_estimator(model)

# %%
# The certificate
# ---------------
# No allowed weights have a value below the lower bound, which is computed independently
# of the solver: the weights in the picture are optimal up to the gap.

print(model.certificate_)

# %%
# The projection
# --------------
# Two classes have one discriminant coordinate. The rows shown are the new tumours; the
# lines are the class means of the model.

from kernelweave.inspection import ProjectionDisplay

display = ProjectionDisplay.from_estimator(model, X_test, y_test)

# %%
# Three or more classes are shown in a plane, here wines from three growers.

from sklearn.datasets import load_wine

wine = load_wine()
growers = wine.target_names[wine.target]
X_train, X_test, y_train, y_test = train_test_split(
    wine.data, growers, stratify=growers, random_state=0
)
wine_model = MultipleKernelFDA().fit(X_train, y_train)
display = ProjectionDisplay.from_estimator(wine_model, X_test, y_test)
