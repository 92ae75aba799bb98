"""Nested parameters of kernels: get, set and clone, without changing user objects."""

from __future__ import annotations

import pickle

import pytest
from sklearn.base import clone
from sklearn.compose import make_column_selector
from sklearn.decomposition import PCA

from kernelweave.kernels.functions import RBF, Linear, Pipe, Polynomial
from kernelweave.models.shared.base import KernelModel


class Model(KernelModel):
    def __init__(self, views=None, alpha=1.0):
        self.views = views
        self.alpha = alpha


def two_views():
    return Model(
        views=[
            ("rna", RBF(gamma=0.5), [0, 1]),
            ("dna", [Linear(), Polynomial(degree=2)], slice(2, 4)),
        ]
    )


@pytest.mark.parametrize("views", [None, "precomputed", "wrong", [("a", "b")], 3])
def test_without_views_only_own_parameters(views):
    model = clone(Model(views=views))
    assert set(model.get_params()) == {"views", "alpha"}
    assert model.set_params(alpha=2.0).alpha == 2.0


def test_get_params_lists_kernels_and_their_parameters():
    params = two_views().get_params()
    assert params["rna"] == RBF(gamma=0.5)
    assert params["rna__gamma"] == 0.5
    assert params["dna__0"] == Linear()
    assert params["dna__1__degree"] == 2
    assert set(two_views().get_params(deep=False)) == {"views", "alpha"}


def test_every_listed_parameter_can_be_set_back():
    model = two_views()
    for name, value in model.get_params().items():
        assert clone(model).set_params(**{name: value}).get_params() == (
            model.get_params()
        )


def test_set_reaches_the_parameter_and_leaves_the_object_alone():
    kernel = RBF(gamma=0.5)
    bank = [Linear(), Polynomial(degree=2)]
    views = [("rna", kernel, [0, 1]), ("dna", bank, slice(2, 4))]
    model = Model(views=views)
    model.set_params(rna__gamma=2.0, dna__1__degree=4, dna__0=RBF(3.0), alpha=5.0)
    assert model.views[0] == ("rna", RBF(gamma=2.0), [0, 1])
    assert model.views[1] == ("dna", [RBF(3.0), Polynomial(degree=4)], slice(2, 4))
    assert model.alpha == 5.0
    assert kernel == RBF(gamma=0.5)
    assert bank == [Linear(), Polynomial(degree=2)]
    assert views == [("rna", kernel, [0, 1]), ("dna", bank, slice(2, 4))]


def test_whole_kernel_and_its_parameter_in_one_call():
    model = two_views().set_params(rna__degree=5, rna=Polynomial())
    assert model.views[0][1] == Polynomial(degree=5)
    model.set_params(views=[("x", RBF(), [0])], x__gamma=7.0)
    assert model.views == [("x", RBF(gamma=7.0), [0])]


def test_parameters_reach_through_a_pipe_also_into_its_list():
    pipe = Pipe(PCA(2), [Linear(), RBF(gamma=1.0)])
    model = Model(views=[("rna", pipe, slice(None))])
    model.set_params(rna__kernel__1__gamma=4.0, rna__transformer__n_components=1)
    changed = model.get_params()["rna"]
    assert changed.kernel[1] == RBF(gamma=4.0)
    assert changed.transformer.n_components == 1
    assert pipe.kernel[1] == RBF(gamma=1.0)
    assert pipe.transformer.n_components == 2


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"rna__gama": 1}, "Invalid parameter 'gama'"),
        ({"rnb__gamma": 1}, "Invalid parameter 'rnb'"),
        ({"dna__2__degree": 1}, "list of 2 kernels: dna__2 is not one of"),
        ({"dna__gamma": 1}, "list of 2 kernels: dna__gamma is not one of"),
    ],
)
def test_unknown_parameters_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        two_views().set_params(**params)


@pytest.mark.parametrize("kernel", ["rbf", print, None, RBF])
def test_kernel_without_parameters_asks_for_an_object(kernel):
    model = Model(views=[("rna", kernel, [0])])
    with pytest.raises(ValueError, match=r"rna__gamma.*such as RBF\(gamma=\.\.\.\)"):
        model.set_params(rna__gamma=1.0)


def test_view_named_like_a_parameter_does_not_hide_it():
    model = Model(views=[("alpha", RBF(), [0])], alpha=3.0)
    assert model.get_params()["alpha"] == 3.0


def test_clone_copies_kernels_columns_and_functions():
    columns = make_column_selector(pattern="^g")
    model = Model(views=[("rna", RBF(gamma=0.5), columns), ("f", [print], [1])])
    copy = clone(model)
    assert copy.views is not model.views
    assert copy.views[0][1] == model.views[0][1]
    assert copy.views[0][1] is not model.views[0][1]
    assert copy.views[1][1] == [print]
    assert pickle.loads(pickle.dumps(two_views())).get_params() == (
        two_views().get_params()
    )
    assert "rna" in repr(copy)
