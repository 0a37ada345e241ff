"""``fedcanon glm`` as a user calls it: CSV files in, tables and pictures out."""

import re

import pandas as pd
import pytest
import statsmodels.api as sm

from tests.statistics.test_study import POOLED, TABLES


@pytest.fixture
def files(tmp_path):
    for k, table in enumerate(TABLES):
        table.drop(columns="visits").to_csv(tmp_path / f"hospital{k}.csv", index=False)
    return sorted(tmp_path.glob("*.csv"))


def test_five_files_become_a_table_of_coefficients(fedcanon, files, tmp_path):
    pictures = tmp_path / "path.png", tmp_path / "forest.png"
    code, out, err = fedcanon(
        *("glm", *map(str, files), "--label", "ill", "--free", "age", "--cv", "3"),
        *("--plot", str(pictures[0]), "--forest", str(pictures[1])),
    )
    assert code == 0, err
    text = re.sub(r"\s+", " ", out)
    assert "5 with 760 rows" in text
    assert "simplest within one error of 50 by 3 folds" in text
    assert "conditional on the selection" in text
    assert all(f"hospital{k}" in text for k in range(5))
    assert all(picture.stat().st_size > 10_000 for picture in pictures)
    [line] = [line for line in out.splitlines() if line.startswith(" age")]
    design = sm.add_constant(
        pd.DataFrame({"age": POOLED["age"], "sex": (POOLED["sex"] == "m").astype(float)})
    )
    theirs = sm.GLM(POOLED["ill"], design, family=sm.families.Binomial()).fit(tol=1e-12)
    assert f"{theirs.params['age']:.4g}" in line
    assert f"{theirs.bse['age']:.4g}" in line


def test_one_file_with_a_site_column_and_a_given_kappa(fedcanon, tmp_path):
    parts = [table.assign(hospital=f"H{k}") for k, table in enumerate(TABLES)]
    pd.concat(parts).to_csv(tmp_path / "all.csv", index=False)
    path = str(tmp_path / "all.csv")
    settings = ("--label", "visits", "--family", "poisson", "--columns", "age,sex,noise1")
    code, out, err = fedcanon("glm", path, "--site", "hospital", *settings, "--kappa", "0.01")
    assert code == 0, err
    assert "H4" in out
    code, _, err = fedcanon("glm", path, "--site", "ward", *settings)
    assert code == 2
    assert "has no column 'ward'" in " ".join(err.split())
