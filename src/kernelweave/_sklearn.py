"""The base classes of scikit-learn, with types for mypy.

scikit-learn has no types, so mypy treats its classes as Any, and believes every
attribute of a class derived from Any: ``model.predct`` would pass. For mypy, which
takes a variable named ``MYPY`` to be true, the public methods are declared here. Other
type checkers read the source of scikit-learn.
"""

from __future__ import annotations

from typing import Any

MYPY = False

if MYPY:
    from typing import Self

    class BaseEstimator:
        """Declares the public methods of scikit-learn's class."""

        n_features_in_: int
        feature_names_in_: Any

        @classmethod
        def _get_param_names(cls) -> list[str]: ...
        def get_params(self, deep: bool = True) -> dict[str, Any]: ...
        def set_params(self, **params: Any) -> Self: ...
        def get_metadata_routing(self) -> Any: ...
        def __sklearn_tags__(self) -> Any: ...

    class CallbackSupportMixin:
        """Declares the public methods of scikit-learn's class."""

        def set_callbacks(self, *callbacks: Any) -> Self: ...
        def _init_callback_context(self, **settings: Any) -> Any: ...

    class ClassifierMixin:
        """Declares the public methods of scikit-learn's class."""

        def __sklearn_tags__(self) -> Any: ...

    class RegressorMixin:
        """Declares the public methods of scikit-learn's class."""

        def __sklearn_tags__(self) -> Any: ...

    class TransformerMixin:
        """Declares the public methods of scikit-learn's class."""

        def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any: ...
        def set_output(self, *, transform: str | None = None) -> Self: ...

    class ClassNamePrefixFeaturesOutMixin:
        """Declares the public methods of scikit-learn's class."""

        def get_feature_names_out(self, input_features: Any = None) -> Any: ...

else:
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        ClassNamePrefixFeaturesOutMixin,
        RegressorMixin,
        TransformerMixin,
    )
    from sklearn.callback import CallbackSupportMixin

__all__ = [
    "BaseEstimator",
    "CallbackSupportMixin",
    "ClassNamePrefixFeaturesOutMixin",
    "ClassifierMixin",
    "RegressorMixin",
    "TransformerMixin",
]
