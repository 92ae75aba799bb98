"""
Which views matter?
===================

Given three views of the same tumours and one view of pure noise, learn one classifier,
the weight of each view, and a proof that the weights are optimal.
"""

# %%
# The data
# --------
# Each tumour is described by ten measurements of its cell nuclei, in three ways: their
# mean, the standard error of the mean, and the worst values in the picture. To see what
# happens to an uninformative view, we add a fourth one of ten columns of noise.

import numpy as np
from sklearn.model_selection import train_test_split

from kernelweave import MultipleKernelFDA
from kernelweave.datasets import load_breast_cancer_views

cancer = load_breast_cancer_views(as_frame=False)
noise = np.random.default_rng(0).standard_normal((len(cancer.data), 10))
X = np.hstack([cancer.data, noise])
y = cancer.target_names[cancer.target]
views = [*cancer.views, ("noise", "auto", slice(30, 40))]
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)

# %%
# The model
# ---------
# The kernel ``"auto"`` of a view stands for a linear kernel and Gaussian kernels of
# several widths. Nothing has to be tuned: the norm of the weights and the
# regularisation are chosen by their leave-one-out error, which has a closed form.

model = MultipleKernelFDA(views).fit(X_train, y_train)
print(f"accuracy on new tumours: {model.score(X_test, y_test):.3f}")
print(f"norm {model.norm_:.3g}, alpha {model.alpha_:.3g}")

# %%
# The weights
# -----------
# Dark bars show the views, light bars their kernels.

from kernelweave.inspection import KernelWeightsDisplay

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
