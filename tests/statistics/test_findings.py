"""Whole studies: p > n, unlike sites, what cannot be found."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from sklearn.linear_model import LassoCV

from fedcanon import FedcanonError
from fedcanon.statistics.findings import EVERYWHERE, investigate
from fedcanon.statistics.report import page, write_coefficients, write_report
from fedcanon.statistics.settings import StudySettings
from fedcanon.statistics.site import StudySite
from fedcanon.tables.site import NO_GUARDS, Guards
from fedcanon.tables.sites import LocalSites
from tests.statistics.test_study import POOLED, SITES


def wide(seed=0, sites=5, rows=20, columns=120, effect=1.2):
    """More columns than rows, of which four matter."""
    rng = np.random.default_rng(seed)
    names = [f"g{k}" for k in range(columns)]
    found = []
    for k in range(sites):
        x = rng.normal(k / 4, 1, (rows, columns))
        y = effect * (x[:, 0] - x[:, 1] + x[:, 2] - x[:, 3]) + rng.normal(size=rows)
        found.append(pd.DataFrame(x, columns=names).assign(y=y))
    return LocalSites([StudySite(f"s{k}", table, NO_GUARDS) for k, table in enumerate(found)])


@pytest.mark.slow
def test_mcp_finds_the_columns_that_matter_where_the_lasso_selects_more():
    sites = wide(rows=14, columns=80, effect=1.5)
    true, columns = {"g0", "g1", "g2", "g3"}, sites.tables[0].table.columns
    settings = {"label": "y", "family": "gaussian", "choose": "min"}
    mcp = investigate(sites, StudySettings(**settings, penalty={"name": "mcp"}), columns)
    lasso = investigate(sites, StudySettings(**settings), columns)
    assert set(mcp.selected) - {"(intercept)"} == true
    assert true < set(lasso.selected) - {"(intercept)"}
    pooled = pd.concat([site.table for site in sites.tables])
    theirs = LassoCV(cv=5).fit(pooled.drop(columns="y"), pooled["y"])
    assert np.count_nonzero(theirs.coef_) > 8  # as glmnet's and ours
    assert len(lasso.selected) > 8
    assert mcp.solution.converged
    assert mcp.table.attrs == {}
    assert "no column" not in page(mcp)


@pytest.mark.slow
def test_a_report_of_every_family():
    for family, label, more in [
        ("gaussian", "age", {}),
        ("poisson", "visits", {"measure": "deviance"}),
        ("multinomial", "sex", {}),
        ("cox", "visits", {"event": "ill", "measure": "discrimination", "choose": "min"}),
        ("huber", "age", {}),
    ]:
        columns = [c for c in ("age", "noise1", "noise2") if c != label]
        settings = StudySettings(label=label, family=family, columns=columns, folds=2, **more)
        found = investigate(SITES, settings, columns)
        text = page(found)
        assert f"({family})" in text
        assert set(found.goodness) == {EVERYWHERE, *SITES.names}
        assert found.goodness[EVERYWHERE].quality.rows == len(POOLED)


def test_a_study_is_written_to_paths_that_are_texts(tmp_path):
    settings = StudySettings(label="ill", columns=("age",), kappa=0.01)
    found = investigate(SITES, settings)
    write_report(found, f"{tmp_path}/page.html")
    write_coefficients(found, f"{tmp_path}/table.csv")
    assert "(binomial)" in (tmp_path / "page.html").read_text()
    assert (tmp_path / "table.csv").read_text() == found.table.to_csv()


def test_strict_sites_are_not_shown_and_the_reason_is():
    strict = [
        StudySite(site.name, site.table, Guards(minimum_sites=3 if k == 1 else 1))
        for k, site in enumerate(SITES.tables)
    ]
    settings = StudySettings(label="ill", columns=("age", "sex"), kappa=0.01)
    found = investigate(LocalSites(strict), settings, ())
    assert "hospital 1" not in found.goodness
    assert found.differences is not None
    assert "hospital 1" not in found.differences.sites
    reasons = " ".join(found.notes)
    assert "the site hospital 1 refuses" in reasons
    assert "minimum_sites = 3" in page(found)
    theirs = sm.GLM(
        POOLED["ill"],
        sm.add_constant(POOLED[["age"]].assign(sex=(POOLED["sex"] == "m").astype(float))),
        family=sm.families.Binomial(),
    ).fit(tol=1e-14)
    assert found.table.loc["age", "error"] == pytest.approx(theirs.bse["age"], rel=1e-5)


@pytest.mark.slow
def test_kappa_may_stand_in_the_penalty_and_columns_may_all_be_free():
    both = [{"penalty": {"name": "l1", "kappa": 0.03}}, {"kappa": 0.03}]
    found = [investigate(SITES, StudySettings(label="ill", columns=("age",), **s)) for s in both]
    assert found[0].kappa == found[1].kappa == 0.03
    assert found[0].table.equals(found[1].table)
    with pytest.raises(FedcanonError, match="kappa is given twice"):
        investigate(SITES, StudySettings(label="ill", columns=("age",), **both[0], kappa=1.0))
    free = StudySettings(label="ill", columns=("age",), free=("age",), kappa=0.1, stability=4)
    unpenalised = investigate(SITES, free)
    assert unpenalised.kappa is None
    assert unpenalised.stability is None
    assert "none, since all columns are free" in page(unpenalised)


@pytest.mark.slow
def test_settings_that_do_not_fit():
    with pytest.raises(FedcanonError, match="no AUC and no concordance"):
        investigate(
            SITES,
            StudySettings(
                label="visits", family="poisson", columns=("age",), measure="discrimination"
            ),
            (),
        )
    with pytest.raises(FedcanonError, match="no column beside 'ill'"):
        StudySettings(label="ill").question(["ill"])
    with pytest.raises(FedcanonError, match="cannot explain the response as well"):
        StudySettings(label="ill", columns=("age", "ill")).question(())


@pytest.mark.slow
@pytest.mark.parametrize("studies", [60, pytest.param(300, marks=pytest.mark.exhaustive)])
def test_intervals_of_the_refit_cover_when_the_support_is_right(studies):
    """The 95 % intervals of many studies cover the truth in 95 % of cases, but for chance."""
    covered, right = np.zeros(4), 0
    for seed in range(studies):
        sites = wide(seed, sites=4, rows=60, columns=12, effect=0.8)
        settings = StudySettings(
            label="y", family="gaussian", penalty={"name": "mcp"}, kappa=0.35, folds=2
        )
        found = investigate(sites, settings, sites.tables[0].table.columns)
        if set(found.selected) != {"g0", "g1", "g2", "g3", "(intercept)"}:
            continue
        right += 1
        truth = np.array([0.8, -0.8, 0.8, -0.8])
        own = found.table.loc[["g0", "g1", "g2", "g3"]]
        covered += (own["low"] <= truth) & (truth <= own["high"])
    assert right > studies * 5 / 6
    share = covered.sum() / (4 * right)
    assert abs(share - 0.95) < 4 * np.sqrt(0.95 * 0.05 / (4 * right))
