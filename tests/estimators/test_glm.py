"""Generalised linear models over sites, against scikit-learn and statsmodels on pooled data."""

import pickle

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from sklearn import clone, config_context
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.impute import SimpleImputer
from sklearn.linear_model import ElasticNet, Lasso, LinearRegression, LogisticRegression
from sklearn.metrics import d2_tweedie_score, r2_score
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import fedcanon
from fedcanon import FedcanonError
from fedcanon.estimators import FederatedGLM
from fedcanon.statistics.choosing import automatic_kappas, bic, folds_of, follow_paths, validate
from fedcanon.statistics.site import StudySite
from fedcanon.statistics.study import Question, begin_study
from fedcanon.tables.preparing import Plan
from fedcanon.tables.site import NO_GUARDS
from fedcanon.tables.sites import LocalSites

SCALES = np.array([1.0, 30.0, 0.01, 5.0, 100.0, 1.0, 1.0, 1.0, 1.0, 1.0])


def diabetes():
    """Columns of very different sizes, in a table, with the sites of the rows."""
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    sites = np.random.default_rng(0).choice(["Aarhus", "Bergen", "Cork"], len(y), p=[0.6, 0.3, 0.1])
    return 20 * X * SCALES + 7, y, sites


def patients(size=400, seed=3):
    """Numbers and categories with missing values, and counts of visits."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"age": rng.normal(50, 10, size), "sex": rng.choice(["f", "m"], size)})
    X["ward"] = rng.choice(["A", "B", "C", "rare"], size, p=[0.5, 0.3, 0.19, 0.01])
    X["dose"] = np.exp(rng.normal(size=size))
    exposure = rng.uniform(0.5, 3, size)
    score = 0.03 * (X["age"] - 50) + 0.5 * (X["sex"] == "m") - 0.4 * (X["ward"] == "B")
    y = rng.poisson(exposure * np.exp(score))
    X.loc[rng.choice(size, 20, replace=False), "age"] = np.nan
    X.loc[rng.choice(size, 10, replace=False), "sex"] = None
    return X, y, np.log(exposure), rng.choice(4, size)


def filled(X):
    """The columns that the preparation makes, by pandas."""
    sex = X["sex"].fillna(X["sex"].value_counts().index[0])
    other = sex.value_counts().index[1]
    return pd.DataFrame(
        {
            "age": X["age"].fillna(X["age"].mean()),
            f"sex = {other}": (sex == other).astype(float),
            "ward = B": (X["ward"] == "B").astype(float),
            "ward = C": (X["ward"] == "C").astype(float),
            "ward = other": (X["ward"] == "rare").astype(float),
            "dose": X["dose"],
        }
    )


def test_it_is_at_the_top_of_the_package():
    assert fedcanon.FederatedGLM is FederatedGLM


def test_the_lasso_is_scikit_learns_on_standardised_columns():
    X, y, sites = diabetes()
    model = FederatedGLM(kappa=1.0).fit(X, y, groups=sites)
    scaler = StandardScaler().fit(X)
    oracle = Lasso(alpha=1.0, tol=1e-14, max_iter=100_000).fit(scaler.transform(X), y)
    coefficients = oracle.coef_ / scaler.scale_
    assert model.coef_ == pytest.approx(coefficients, abs=1e-6)
    assert model.intercept_ == pytest.approx(oracle.intercept_ - coefficients @ scaler.mean_)
    assert ((model.coef_ == 0) == (oracle.coef_ == 0)).all()
    assert 0 < (model.coef_ == 0).sum() < 10
    assert model.predict(X) == pytest.approx(oracle.predict(scaler.transform(X)), abs=1e-6)
    assert model.score(X, y) == pytest.approx(r2_score(y, model.predict(X)))
    assert model.columns_ == list(X.columns) == list(model.feature_names_in_)
    assert (model.kappa_, model.path_, model.validation_) == (1.0, None, None)
    alone = clone(model).fit(X.to_numpy(), y)
    assert alone.coef_ == pytest.approx(model.coef_, abs=1e-8)
    assert alone.columns_ == [f"x{k}" for k in range(10)]


@pytest.mark.slow
def test_l1_logistic_regression_is_scikit_learns_on_standardised_columns():
    X, y = load_breast_cancer(return_X_y=True)
    labels = np.array(["benign", "malign"])[y]
    model = FederatedGLM("binomial", kappa=0.05).fit(X, labels, groups=np.arange(len(y)) % 4)
    scaler = StandardScaler().fit(X)
    oracle = LogisticRegression(
        C=1 / (0.05 * len(y)), l1_ratio=1, solver="saga", tol=1e-12, max_iter=100_000
    ).fit(scaler.transform(X), labels)
    assert model.coef_ * scaler.scale_ == pytest.approx(oracle.coef_, abs=1e-6)
    scores = oracle.decision_function(scaler.transform(X))
    assert model.decision_function(X) == pytest.approx(scores, abs=1e-5)
    assert model.predict_proba(X) == pytest.approx(
        oracle.predict_proba(scaler.transform(X)), abs=1e-6
    )
    assert (model.predict(X) == oracle.predict(scaler.transform(X))).all()
    assert model.score(X, labels) == oracle.score(scaler.transform(X), labels)
    assert list(model.classes_) == ["benign", "malign"]


@pytest.mark.parametrize("names", [["setosa", "versicolor", "virginica"], ["9", "10", "100"]])
def test_multinomial_ridge_regression_is_scikit_learns(names):
    X, y = load_iris(return_X_y=True)
    labels = np.array(names)[y]
    model = FederatedGLM("multinomial", penalty="ridge", kappa=0.05).fit(X, labels)
    scaler = StandardScaler().fit(X)
    oracle = LogisticRegression(C=1 / (0.05 * len(y)), tol=1e-10, max_iter=10_000)
    oracle.fit(scaler.transform(X), labels)
    assert model.coef_ * scaler.scale_ == pytest.approx(oracle.coef_, abs=1e-5)
    assert model.predict_proba(X) == pytest.approx(
        oracle.predict_proba(scaler.transform(X)), abs=1e-5
    )
    assert (model.predict(X) == oracle.predict(scaler.transform(X))).all()
    assert list(model.classes_) == sorted(names)
    table = model.summary()
    assert table.loc[f"{names[2]}: x3", "coefficient"] == pytest.approx(
        model.coef_[list(model.classes_).index(names[2]), 3]
    )
    assert table["refit"].isna().all()


def test_poisson_counts_are_those_of_statsmodels():
    X, y, offset, sites = patients()
    model = FederatedGLM("poisson", kappa=1e-9).fit(X, y, groups=sites, offset=offset)
    design = sm.add_constant(filled(X))
    oracle = sm.GLM(y, design, family=sm.families.Poisson(), offset=offset).fit(tol=1e-14)
    assert model.columns_ == list(design.columns[1:])
    assert model.coef_ == pytest.approx(oracle.params.iloc[1:].to_numpy(), abs=1e-6)
    assert model.intercept_ == pytest.approx(oracle.params.iloc[0], abs=1e-6)
    assert model.predict(X, offset=offset) == pytest.approx(oracle.fittedvalues, rel=1e-6)
    assert model.predict(X) == pytest.approx(oracle.fittedvalues / np.exp(offset), rel=1e-6)
    explained = 1 - oracle.deviance / oracle.null_deviance
    assert model.score(X, y, offset=offset) == pytest.approx(explained, abs=1e-8)
    assert model.score(X, y) == pytest.approx(d2_tweedie_score(y, model.predict(X), power=1))
    table = model.summary()
    order = [*design.columns[1:], "const"]
    assert list(table.index) == [*design.columns[1:], "(intercept)"]
    assert table["refit"].to_numpy() == pytest.approx(oracle.params[order].to_numpy(), abs=1e-7)
    assert table["error"].to_numpy() == pytest.approx(oracle.bse[order].to_numpy(), rel=1e-5)
    wide = model.summary(level=0.99)
    assert (wide["high"] > table["high"]).all()


@pytest.mark.parametrize("penalty", [None, "free"])
def test_without_a_penalty_it_is_the_plain_model(penalty):
    X, y, _, sites = patients()
    free = list(X.columns) if penalty == "free" else ()
    model = FederatedGLM(penalty=None if penalty is None else "l1", free=free)
    model.fit(X, y, groups=sites)
    oracle = LinearRegression().fit(filled(X), y)
    assert model.kappa_ is None
    assert model.coef_ == pytest.approx(oracle.coef_, abs=1e-7)


def test_new_rows_are_prepared_like_the_old_ones():
    X, y, _, sites = patients()
    model = FederatedGLM(penalty=None).fit(X, y, groups=sites)
    new = X.iloc[[5, 6, 7]].copy()
    new["age"], new["sex"], new["ward"] = [np.nan, 40.0, 50.0], [None, "f", "m"], ["A", "Z", "B"]
    reference = X["sex"].value_counts().index[0]
    known = new.assign(
        age=[X["age"].mean(), 40.0, 50.0], sex=[reference, "f", "m"], ward=["A", "rare", "B"]
    )
    assert model.predict(new) == pytest.approx(model.predict(known))
    imputed = make_pipeline(
        make_column_transformer(
            (SimpleImputer(), ["age", "dose"]),
            (
                make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(drop="first")),
                ["sex", "ward"],
            ),
        ),
        LinearRegression(),
    )
    assert model.predict(X) == pytest.approx(imputed.fit(X, y).predict(X), abs=1e-7)


def test_coefficients_are_in_the_order_of_the_columns_also_if_some_are_free():
    X, y, sites = diabetes()
    model = FederatedGLM(kappa=5.0, free=["age", "s3"], splines={"bmi": 3}).fit(X, y, groups=sites)
    assert model.columns_[:4] == ["age", "sex", "bmi", "bmi spline 1"]
    table = model.summary()
    assert table.loc[model.columns_, "coefficient"].to_numpy() == pytest.approx(model.coef_)
    assert list(table.index[-3:]) == ["age", "s3", "(intercept)"]
    assert dict(zip(model.columns_, model.coef_ != 0, strict=True))["s3"]
    assert model.predict(X)[:50] == pytest.approx(model.predict(X[:50]))


def direct(X, y, sites, **settings):
    """The study, and its path, by calling functions of the statistics package."""
    table = X.assign(response=y)
    rows = [StudySite(name, table[sites == name], NO_GUARDS) for name in np.unique(sites)]
    study = begin_study(LocalSites(rows), Question("response", Plan(list(X.columns)), **settings))
    penalties = study.penalties({"name": "l1"})
    kappas = automatic_kappas(study, penalties)
    return study, penalties, follow_paths(study, penalties, kappas)[0]


@pytest.mark.slow
@pytest.mark.parametrize("choose", ["1se", "min", "bic", "ebic"])
@pytest.mark.parametrize("leave_one_site_out", [False, True])
def test_kappa_is_chosen_as_by_the_functions_themselves(choose, leave_one_site_out):
    X, y, sites = diabetes()
    model = FederatedGLM(choose=choose, cv=4, leave_one_site_out=leave_one_site_out, random_state=2)
    model.fit(X, y, groups=sites)
    study, penalties, path = direct(X, y, sites)
    if "bic" in choose:
        place = int(np.argmin(bic(study, path, extended=choose == "ebic")))
        assert model.validation_ is None
    else:
        folds = folds_of(study, 4, "sites" if leave_one_site_out else "rows", seed=2)
        path, both = validate(study, penalties, path.kappas, folds)
        found = both.deviance
        place = found.simplest if choose == "1se" else found.best
        assert np.array_equal(model.validation_.deviance.values, found.values)
    assert model.kappa_ == path.kappas[place]
    assert np.array_equal(model.solution_.vector, path.vectors[place])
    assert model.n_iter_ == path.solutions[place].rounds
    assert place > 0


@pytest.mark.slow
def test_penalties_by_name_and_with_parameters():
    X, y, sites = diabetes()

    def coefficients(penalty, kappa=None):
        return FederatedGLM(penalty=penalty, kappa=kappa).fit(X, y, groups=sites).coef_

    lasso = coefficients("l1", 2.0)
    assert np.array_equal(coefficients("lasso", 2.0), lasso)
    assert np.array_equal(coefficients({"name": "l1"}, 2.0), lasso)
    assert np.array_equal(coefficients({"name": "l1", "kappa": 2.0}), lasso)
    for name in ("mcp", "scad"):
        table = {"name": name, "form": "lambda"}
        assert np.array_equal(coefficients(name, 2.0), coefficients(table, 2.0))
        scaled = {"name": name, "form": "scaled"}
        assert not np.array_equal(coefficients(name, 2.0), coefficients(scaled, 2.0))
    theirs = ElasticNet(alpha=2.0, l1_ratio=0.3, tol=1e-12, max_iter=100_000)
    theirs.fit(StandardScaler().fit_transform(X), y)
    ours = coefficients({"name": "elastic_net", "l1_ratio": 0.3}, 2.0)
    assert (ours * X.std(ddof=0)).to_numpy() == pytest.approx(theirs.coef_, abs=1e-5)
    assert np.array_equal(coefficients({"name": "enet", "l1_ratio": 0.3}, 2.0), ours)
    net = FederatedGLM(penalty={"name": "elastic_net", "kappa1": 2.0, "kappa2": 0.0}).fit(X, y)
    assert net.coef_ == pytest.approx(lasso, abs=1e-7)
    assert net.kappa_ is None
    both = {"name": "sum", "terms": [{"name": "l1", "kappa": 2.0}, {"name": "ridge", "kappa": 0.0}]}
    assert coefficients(both) == pytest.approx(lasso, abs=1e-6)


def test_all_columns_of_a_variable_are_in_the_model_together():
    X, y, _, sites = patients(800)
    model = FederatedGLM(
        "poisson",
        penalty={"name": "group_lasso", "groups": "variables"},
        splines={"age": 4, "dose": 4},
        kappa=0.1,
    ).fit(X, y, groups=sites)
    chosen = dict(zip(model.columns_, model.coef_ != 0, strict=True))
    by_variable = {v: {on for c, on in chosen.items() if c.startswith(v)} for v in X.columns}
    assert by_variable["age"] == {True}
    assert by_variable["dose"] == {False}
    assert all(len(found) == 1 for found in by_variable.values())


def test_weights_are_repeated_rows():
    X, y, offset, sites = patients()
    weights = np.random.default_rng(1).integers(0, 4, len(y))
    weights[sites == 2] = 0  # then there is no such site
    again = np.repeat(np.arange(len(y)), weights)
    options = {"kappa": 0.05, "missing": {"dose": 1.0}, "indicators": ["age"]}
    model = FederatedGLM("poisson", **options)
    model.fit(X, y, groups=sites, sample_weight=weights, offset=offset)
    repeated = clone(model).fit(X.iloc[again], y[again], groups=sites[again], offset=offset[again])
    assert model.columns_ == repeated.columns_
    assert model.coef_ == pytest.approx(repeated.coef_, abs=1e-7)
    assert model.study_.sites.names == ["0", "1", "3"]
    expected = repeated.score(X.iloc[again], y[again])
    assert model.score(X, y, sample_weight=weights) == pytest.approx(expected, abs=1e-8)


def test_class_weights_are_those_of_scikit_learn():
    X, y = load_breast_cancer(return_X_y=True)
    X = X[:, :6]
    balanced = FederatedGLM("binomial", penalty="ridge", kappa=0.05, class_weight="balanced")
    scaler = StandardScaler().fit(X)
    oracle = LogisticRegression(C=1 / (0.05 * len(y)), class_weight="balanced", tol=1e-10)
    oracle.fit(scaler.transform(X), y)
    assert balanced.fit(X, y).coef_ * scaler.scale_ == pytest.approx(oracle.coef_, abs=1e-5)
    given = clone(balanced).set_params(class_weight={0: 2.0, 1: 1.0}).fit(X, y)
    weighted = clone(balanced).set_params(class_weight=None)
    weighted.fit(X, y, sample_weight=np.where(y == 0, 2.0, 1.0))
    assert given.coef_ == pytest.approx(weighted.coef_)


def test_columns_of_the_user_may_have_any_name():
    X, y, sites = diabetes()
    expected = FederatedGLM(kappa=1.0).fit(X, y, groups=sites).coef_
    odd = X.set_axis(["response", "weights", "site", "site_", "offset", *X.columns[5:]], axis=1)
    model = FederatedGLM(kappa=1.0).fit(odd, y, groups=sites, sample_weight=np.ones(len(y)))
    assert model.coef_ == pytest.approx(expected, abs=1e-8)
    assert model.score(odd, y) == pytest.approx(r2_score(y, model.predict(odd)))
    numbered = X.set_axis(range(10), axis=1)
    assert FederatedGLM(kappa=1.0, free=["x1"]).fit(numbered, y).columns_[:2] == ["x0", "x1"]


@pytest.mark.slow
def test_a_pickle_predicts_and_has_no_rows():
    X, y, sites = diabetes()
    X.iloc[17, 3] = 123.456789
    model = FederatedGLM(choose="min").fit(X, y, groups=sites)
    table = model.summary()
    stored = pickle.dumps(model)
    assert np.float64(123.456789).tobytes() in pickle.dumps(model.study_)
    assert np.float64(123.456789).tobytes() not in stored
    copy = pickle.loads(stored)
    assert np.array_equal(copy.predict(X), model.predict(X))
    assert copy.score(X, y) == model.score(X, y)
    assert copy.kappa_ == model.kappa_
    with pytest.raises(FedcanonError, match="call summary\\(\\) before"):
        copy.summary()
    assert model.summary().equals(table)  # the model itself still has its rows


def test_a_grid_search_gives_the_sites_to_the_model_and_to_the_splitter():
    X, y, sites = diabetes()
    with config_context(enable_metadata_routing=True):
        model = FederatedGLM().set_fit_request(groups=True)
        search = GridSearchCV(model, {"kappa": np.array([1.0, 40.0])}, cv=GroupKFold(3))
        search.fit(X, y, groups=sites)
    assert search.best_params_ == {"kappa": 1.0}
    assert search.best_estimator_.study_.sites.names == ["Aarhus", "Bergen", "Cork"]


@pytest.mark.slow
def test_folds_from_a_random_state():
    X, y, _ = diabetes()
    model = FederatedGLM(cv=2, random_state=np.random.RandomState(0))
    first, second = (clone(model).fit(X, y).validation_.deviance for _ in range(2))
    assert np.array_equal(first.values, second.values)
    third = clone(model).set_params(random_state=1).fit(X, y).validation_.deviance
    assert not np.array_equal(first.values, third.values)


def test_a_category_that_no_site_had_is_told_with_its_rows():
    X, y, _, sites = patients()
    X = X[X["ward"] != "rare"][["ward", "sex"]]
    model = FederatedGLM("poisson", kappa=0.01).fit(X, y[X.index], groups=sites[X.index])
    new = X.assign(ward=["new", *X["ward"][1:]])
    words = "'ward' has 1 of .* rows with a category .*'new', which counts as 'A'"
    with pytest.warns(UserWarning, match=words):
        found = model.predict(new)
    assert found[1:] == pytest.approx(model.predict(X)[1:])
    assert found[0] == model.predict(X.assign(ward="A"))[0]
