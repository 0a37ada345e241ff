"""A study from raw tables to a table of coefficients, against pooled oracles."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from glum import GeneralizedLinearRegressor

from fedcanon import FedcanonError
from fedcanon.objectives.families import Poisson
from fedcanon.statistics.site import StudySite
from fedcanon.statistics.study import Question, begin_study
from fedcanon.tables.preparing import Plan
from fedcanon.tables.sites import LocalSites

RNG = np.random.default_rng(5)
SIZES = (150, 220, 90, 180, 120)


def tables():
    """Five unlike hospitals, with known coefficients: age, sex, one of three noise columns."""
    found = []
    for k, size in enumerate(SIZES):
        age = RNG.normal(45 + 4 * k, 12, size)
        table = pd.DataFrame({"age": age, "sex": RNG.choice(["f", "m"], size)})
        for name in ("noise1", "noise2", "noise3"):
            table[name] = RNG.normal(k, 1 + k, size)
        score = 0.06 * (age - 50) + 0.9 * (table["sex"] == "m") - 0.5
        table["ill"] = (RNG.uniform(size=size) < 1 / (1 + np.exp(-score))).astype(int)
        table["visits"] = RNG.poisson(np.exp(score / 2))
        found.append(table)
    return found


TABLES = tables()
POOLED = pd.concat(TABLES, ignore_index=True)
SITES = LocalSites([StudySite(f"hospital {k}", table) for k, table in enumerate(TABLES)])
PLAN = Plan(["age", "sex", "noise1", "noise2", "noise3"])


def design(columns):
    frame = POOLED[columns].copy()
    if "sex" in frame:
        reference = POOLED["sex"].value_counts().index[0]
        other = "m" if reference == "f" else "f"
        frame["sex"] = (frame["sex"] == other).astype(float)
    return sm.add_constant(frame.astype(float))


@pytest.mark.parametrize(
    ("family", "response", "oracle"),
    [
        ("binomial", "ill", sm.families.Binomial()),
        ("poisson", "visits", sm.families.Poisson()),
        ("gaussian", "age", sm.families.Gaussian()),
    ],
)
def test_the_refit_is_statsmodels_on_the_pooled_table(family, response, oracle):
    columns = [c for c in PLAN.columns if c != response]
    study = begin_study(SITES, Question(response, Plan(columns), family))
    penalty = study.penalty({"name": "l1", "kappa": 1e-9})
    table = study.summary(study.fitted(penalty))
    theirs = sm.GLM(POOLED[response], design(columns), family=oracle).fit(tol=1e-14)
    order = [*range(1, len(columns) + 1), 0]
    assert table.attrs == {}
    assert np.allclose(table["refit"], theirs.params.iloc[order], atol=1e-7)
    assert np.allclose(table["error"], theirs.bse.iloc[order], rtol=1e-5)
    assert np.allclose(table[["low", "high"]], theirs.conf_int().iloc[order], atol=1e-5)
    assert table.index[-1] == "(intercept)"


def test_mcp_finds_the_columns_that_matter_and_names_them():
    study = begin_study(SITES, Question("ill", PLAN, "binomial"))
    penalty = study.penalty({"name": "mcp", "kappa": 0.06, "gamma": 5.0, "form": "lambda"})
    solution = study.fitted(penalty)
    table = study.summary(solution)
    chosen = table.index[table["refit"].notna()]
    assert [name.partition(" =")[0] for name in chosen] == ["age", "sex", "(intercept)"]
    assert table.loc["age", "low"] < 0.06 < table.loc["age", "high"]
    assert solution.rounds <= 15


def test_free_columns_stay_when_all_others_are_out():
    study = begin_study(SITES, Question("ill", PLAN, "binomial", free=["age"]))
    assert study.model.recipe.columns[-1] == "age"
    kappa = study.largest_kappa(lambda k: study.penalty({"name": "l1", "kappa": k}))
    solution = study.fitted(study.penalty({"name": "l1", "kappa": 1.0001 * kappa}))
    coefficients = dict(zip(study.names, study.coefficients(solution.vector), strict=True))
    assert [name for name, value in coefficients.items() if value] == ["age", "(intercept)"]
    theirs = sm.GLM(POOLED["ill"], design(["age"]), family=sm.families.Binomial()).fit(tol=1e-14)
    assert coefficients["age"] == pytest.approx(theirs.params["age"], abs=1e-8)


def test_all_columns_of_a_variable_can_be_a_group():
    plan = Plan(["age", "noise1", "noise2"], splines={"age": 5, "noise1": 4})
    study = begin_study(SITES, Question("ill", plan, "binomial", free=["noise2"]))
    assert study.groups == [[0, 1, 2, 3], [4, 5, 6]]
    found = study.fitted(
        study.penalty({"name": "group_lasso", "kappa": 0.05, "groups": "variables"})
    )
    age, noise = found.vector[:4], found.vector[4:7]
    assert bool((age != 0).all())
    assert not bool(noise.any())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"family": "weibull"}, "no family 'weibull'"),
        ({"family": "cox"}, "needs a column event"),
        ({"family": "gaussian", "event": "ill"}, "needs a column event"),
        ({"free": ["height"]}, "free names 'height'"),
    ],
)
def test_questions_with_a_mistake_are_refused(settings, words):
    with pytest.raises(FedcanonError, match=words):
        Question("ill", PLAN, **settings)


class Doubled(Poisson):
    """A family of the user's own: Poisson, whose loss counts twice."""

    def loss(self, scores, y):
        return 2 * super().loss(scores, y)

    def slopes(self, scores, y):
        return 2 * super().slopes(scores, y)

    def curvatures(self, scores, y):
        return 2 * super().curvatures(scores, y)


def test_a_family_of_ones_own():
    own = begin_study(SITES, Question("visits", PLAN, f"{__name__}:Doubled"))
    known = begin_study(SITES, Question("visits", PLAN, "poisson"))
    ours = own.fitted(own.penalty({"name": "l1", "kappa": 0.1}))
    theirs = known.fitted(known.penalty({"name": "l1", "kappa": 0.05}))
    assert np.allclose(ours.vector, theirs.vector, atol=1e-7)
    with pytest.raises(FedcanonError, match="cannot be imported"):
        begin_study(SITES, Question("visits", PLAN, "no.such.module:Family"))


def test_a_cox_model_is_stratified_and_says_why():
    asked = {"family": "cox", "event": "ill"}
    with pytest.raises(FedcanonError, match=r"always stratified by site.*no sum over sites"):
        begin_study(SITES, Question("visits", PLAN, options={"stratified": False}, **asked))
    with pytest.raises(FedcanonError, match="the family cox has no option 'dispersion'"):
        begin_study(SITES, Question("visits", PLAN, options={"dispersion": 1.0}, **asked))
    with pytest.raises(FedcanonError, match="the family multinomial has no option 'ties'"):
        begin_study(SITES, Question("sex", Plan(["age"]), "multinomial", {"ties": "efron"}))


@pytest.mark.slow
def test_ten_sites_and_a_hundred_columns_take_few_rounds():
    rng = np.random.default_rng(8)
    names = [f"x{k}" for k in range(100)]
    sites = []
    for k in range(10):
        x = rng.normal(k / 5, 1 + k / 10, (60, 100))
        table = pd.DataFrame(x, columns=names)
        score = x[:, :5] @ [1.0, -1.0, 0.5, -0.5, 0.8] - 0.2 * k
        table["y"] = (rng.uniform(size=60) < 1 / (1 + np.exp(-score))).astype(int)
        sites.append(StudySite(f"s{k}", table))
    study = begin_study(LocalSites(sites), Question("y", Plan(names), "binomial"))
    for name in ("l1", "mcp"):
        found = study.fitted(study.penalty({"name": name, "kappa": 0.03}))
        assert found.converged
        assert found.rounds <= 15
    lasso = study.fitted(study.penalty({"name": "l1", "kappa": 0.03}))
    pooled = pd.concat([site.table for site in sites])
    theirs = GeneralizedLinearRegressor(
        family="binomial", alpha=0.03, l1_ratio=1.0, gradient_tol=1e-9, max_iter=1000
    ).fit(study.model.recipe.prepared(pooled), pooled["y"])
    assert np.allclose(lasso.vector[:-1], theirs.coef_, atol=1e-6)


def test_options_that_a_family_does_not_have():
    with pytest.raises(FedcanonError, match=r"unknown key 'family\.delta'"):
        begin_study(SITES, Question("visits", PLAN, "poisson", {"delta": 1.0}))


def test_a_response_that_cannot_be_names_the_site():
    odd = TABLES[1].assign(visits=-1.0)
    sites = LocalSites([SITES.tables[0], StudySite("Oslo", odd)])
    with pytest.raises(FedcanonError, match="the site Oslo: the family poisson needs counts"):
        begin_study(sites, Question("visits", Plan(["age"]), "poisson"))
    lacking = TABLES[1].assign(visits=np.nan)
    with pytest.raises(FedcanonError, match="'visits' of the site Oslo lacks 220 values"):
        begin_study(
            LocalSites([SITES.tables[0], StudySite("Oslo", lacking)]),
            Question("visits", Plan(["age"])),
        )
