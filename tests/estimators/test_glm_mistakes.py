"""What the user of a generalised linear model over sites may get wrong."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.model_selection import GroupKFold

from fedcanon import FedcanonError
from fedcanon.estimators import FederatedGLM
from fedcanon.penalties import L1
from tests.estimators.test_glm import patients


def test_a_missing_column_or_an_odd_value_is_explained():
    X, y, _, _ = patients()
    model = FederatedGLM(penalty=None, logs=["dose"]).fit(X, y)
    for new, words in [
        (X.drop(columns="age"), r"yet now missing:\n- age"),
        (X.assign(age="old"), "'age' of the site X has a value that is no number, in row 0"),
        (X.assign(dose=-1.0), "'dose' of the site X has values up to 0, which have no logarithm"),
    ]:
        with pytest.raises(FedcanonError, match=words):
            model.predict(new)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"family": "weibull"}, "there is no family 'weibull'"),
        ({"family": "cox"}, "FederatedCox"),
        ({"family": "gamma"}, "the family gamma needs responses above 0"),
        ({"family": "binomial"}, 'use family="multinomial"'),
        ({"penalty": "box"}, "has no kappa: give it with its own parameters"),
        ({"penalty": "laso"}, "there is no penalty called 'laso'"),
        ({"penalty": L1(1.0)}, "penalty is a name, a dictionary with a name, or None"),
        ({"kappa": -1.0}, "kappa at least 0"),
        ({"choose": "aic"}, 'choose is "1se", "min", "bic" or "ebic", not \'aic\''),
        ({"cv": 1}, "2 folds or more"),
        ({"cv": GroupKFold(3)}, "cv is a number of folds"),
        ({"leave_one_site_out": True}, "two or more"),
        ({"class_weight": "balanced"}, "no classes to be balanced"),
        ({"free": ["height"]}, "free names 'height'"),
        ({"splines": {"x0": 2}}, "3 to 7 knots"),
        ({"options": {"delta": 1.0}, "family": "huber", "kappa": -1.0}, "kappa at least 0"),
    ],
)
def test_mistakes_are_explained(parameters, words):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(FedcanonError, match=words):
        FederatedGLM(**parameters).fit(X, y)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"groups": [0, 1]}, "inconsistent numbers of samples"),
        ({"groups": ["a", None] * 75}, "group of sample 1 is missing"),
        ({"groups": [1, "1"] * 75}, "two groups have the same name"),
        ({"sample_weight": np.zeros(150)}, "all sample weights are zero"),
        ({"sample_weight": -np.ones(150)}, "weights of samples must be at least 0"),
        ({"sample_weight": np.ones((150, 2))}, "sample_weight needs a number for each of 150"),
        ({"offset": [0.0]}, "offset needs a number for each of 150 samples"),
        ({"offset": np.full(150, np.nan)}, "offset contains NaN"),
    ],
)
def test_columns_beside_x_that_cannot_be_are_explained(given, words):
    X, y = load_iris(return_X_y=True)
    if "groups" in given:
        given = {"groups": np.array(given["groups"], dtype=object)}
    with pytest.raises((FedcanonError, ValueError), match=words):
        FederatedGLM(kappa=0.1).fit(X, y, **given)


@pytest.mark.slow
def test_too_few_rows_for_the_folds():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(FedcanonError, match="no site has a row for each of 5 folds"):
        FederatedGLM(cv=5).fit(X, y, groups=np.arange(150) // 3)
    with pytest.raises(FedcanonError, match="x0' is the same in all rows"):
        FederatedGLM().fit(np.ones((10, 2)), np.arange(10))
