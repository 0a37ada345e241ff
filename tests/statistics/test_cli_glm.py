"""``fedcanon glm`` as a user calls it: CSV files in, a table and a report out."""

import re

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from tests.statistics.test_study import POOLED, TABLES


@pytest.fixture
def files(tmp_path):
    for k, table in enumerate(TABLES):
        table.drop(columns="visits").to_csv(tmp_path / f"hospital{k}.csv", index=False)
    return sorted(map(str, tmp_path.glob("*.csv")))


@pytest.fixture
def one_file(tmp_path):
    parts = [table.assign(hospital=f"H{k}") for k, table in enumerate(TABLES)]
    path = tmp_path / "all.csv"
    pd.concat(parts).to_csv(path, index=False)
    return str(path)


@pytest.mark.slow
def test_five_files_become_a_table_of_coefficients_and_a_report(fedcanon, files, tmp_path):
    report, table = tmp_path / "report.html", tmp_path / "coefficients.csv"
    code, out, err = fedcanon(
        *("glm", *files, "--label", "ill", "--free", "age", "--cv", "3", "--penalty", "mcp"),
        *("--stability", "6", "--report", str(report), "--table", str(table)),
    )
    assert code == 0, err
    text = re.sub(r"\s+", " ", out)
    assert "5 sites with 760 rows" in text
    assert "simplest within one error of the best of 50 by 3 folds" in text
    assert "conditional on the selection" in text
    assert all(f"hospital{k}" in text for k in range(5))
    [line] = [line for line in out.splitlines() if line.startswith(" age")]
    design = sm.add_constant(
        pd.DataFrame({"age": POOLED["age"], "sex": (POOLED["sex"] == "m").astype(float)})
    )
    theirs = sm.GLM(POOLED["ill"], design, family=sm.families.Binomial()).fit(tol=1e-12)
    assert f"{theirs.params['age']:.4g}" in line
    assert f"{theirs.bse['age']:.4g}" in line
    page = report.read_text()
    assert page.count("data:image/svg+xml") == 4  # path, calibration, forest, stability
    assert "conditional on the selection" in page
    assert "compared with f: m" in page
    written = pd.read_csv(table, index_col="column")
    assert written.loc["age", "refit"] == pytest.approx(theirs.params["age"], abs=1e-8)


def test_one_file_with_a_site_column_and_a_given_kappa(fedcanon, one_file, tmp_path):
    settings = ("--label", "visits", "--family", "poisson", "--columns", "age,sex,noise1")
    report = ("--report", str(tmp_path / "r.html"))
    code, out, err = fedcanon(
        "glm", one_file, "--site", "hospital", *settings, "--kappa", "0.01", *report
    )
    assert code == 0, err
    assert "H4" in out
    assert "as given" in out


@pytest.mark.slow
def test_settings_in_a_file_and_other_preparations(fedcanon, one_file, tmp_path):
    study = tmp_path / "study.toml"
    study.write_text(
        'label = "visits"\nfamily = "gamma"\nchoose = "bic"\n[penalty]\nname = "scad"\n'
    )
    report = tmp_path / "r.html"
    code, out, err = fedcanon(
        *("glm", one_file, "--site", "hospital", "--study", str(study), "--family", "poisson"),
        *("--splines", "age:4", "--missing", "noise1:median,sex:f", "--report", str(report)),
    )
    assert code == 0, err
    assert "poisson" in out
    assert "smallest BIC of 50" in re.sub(r"\s+", " ", out)
    assert "spline with knots at" in report.read_text()


@pytest.mark.slow
def test_groups_are_variables(fedcanon, one_file, tmp_path):
    code, out, err = fedcanon(
        *("glm", one_file, "--site", "hospital", "--label", "ill", "--columns", "age,noise1,sex"),
        *("--splines", "age:5,noise1:4", "--penalty", "group_lasso", "--kappa", "0.05"),
        *("--report", str(tmp_path / "r.html")),
    )
    assert code == 0, err
    assert "age spline 3" in out
    assert "noise1" not in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--site", "ward", "--label", "ill"), "has no column 'ward'"),
        (("--site", "hospital"), "label is missing"),
        (("--site", "hospital", "--label", "ill", "--family", "weibull"), "no family 'weibull'"),
        (("--site", "hospital", "--label", "ill", "--splines", "age"), "takes column:value"),
        (("--site", "hospital", "--label", "visits"), "values (0, 1, 2, 3, 4 …)"),
        (("--site", "hospital", "--label", "death"), "has no column 'death'"),
        (("--site", "hospital", "--label", "ill", "--choose", "cv"), "choose = 'cv'"),
        (("--site", "hospital", "--label", "ill", "--report", "no/such/r.html"), "no folder"),
        (("--site", "hospital", "--label", "ill", "--penalty", "laso"), "no penalty"),
    ],
)
def test_mistakes_are_one_sentence(fedcanon, one_file, options, words):
    code, _, err = fedcanon("glm", one_file, *options)
    assert code == 2
    assert words in " ".join(err.split())
    assert "Traceback" not in err


def test_sites_without_a_name_and_twice_the_same_file(fedcanon, one_file, tmp_path):
    lacking = pd.read_csv(one_file)
    lacking.loc[:3, "hospital"] = np.nan
    lacking.to_csv(tmp_path / "lacking.csv", index=False)
    code, _, err = fedcanon(
        "glm", str(tmp_path / "lacking.csv"), "--site", "hospital", "--label", "ill"
    )
    assert code == 2
    assert "4 rows of" in " ".join(err.split())
    code, _, err = fedcanon("glm", one_file, one_file, "--label", "ill")
    assert code == 2
    assert "same name" in err
