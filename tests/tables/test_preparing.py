"""Preparation over sites, against the same of the pooled table by scikit-learn and NumPy."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler

from fedcanon import FedcanonError
from fedcanon.tables.preparing import Plan, prepare
from fedcanon.tables.quantiles import quantiles
from fedcanon.tables.site import Guards, SiteTable
from fedcanon.tables.sites import LocalSites, each, required

RNG = np.random.default_rng(1)
SIZES = {"Aarhus": 80, "Bergen": 55, "Cork": 130}


def tables():
    """Three unlike sites: other orders, types and levels, missing values, an extra column."""
    found = {}
    for k, (name, size) in enumerate(SIZES.items()):
        age = RNG.normal(50 + 5 * k, 10, size)
        income = np.exp(RNG.normal(8 + k / 3, 1, size))
        smoker = RNG.choice(["never", "former", "current"], size, p=[0.5, 0.3, 0.2])
        ward = RNG.choice(["A", "B", "C", f"rare{k}"], size, p=[0.5, 0.3, 0.15, 0.05])
        table = pd.DataFrame({"age": age, "income": income, "smoker": smoker, "ward": ward})
        table["visits"] = RNG.poisson(3, size)
        table.loc[RNG.choice(size, 9, replace=False), "age"] = np.nan
        table.loc[RNG.choice(size, 6, replace=False), "smoker"] = None
        found[name] = table
    found["Bergen"] = found["Bergen"][["ward", "visits", "smoker", "income", "age"]]
    found["Bergen"]["smoker"] = found["Bergen"]["smoker"].astype("category")
    found["Cork"]["extra"] = 1
    found["Cork"]["visits"] = found["Cork"]["visits"].astype("float32")
    return found


TABLES = tables()
POOLED = pd.concat([t.astype({"smoker": object}) for t in TABLES.values()], ignore_index=True)
SITES = LocalSites([SiteTable(name, table) for name, table in TABLES.items()])


def prepared(plan):
    recipe = prepare(SITES, plan)
    rows = np.concatenate([recipe.prepared(table) for table in TABLES.values()])
    return recipe, pd.DataFrame(rows, columns=recipe.columns)


@pytest.mark.parametrize("how", ["mean", "median", 40.0])
def test_numbers_are_those_of_scikit_learn_on_the_pooled_table(how):
    recipe, ours = prepared(Plan(["age", "visits"], missing={"age": how}))
    strategy = {"strategy": how} if isinstance(how, str) else {}
    strategy = strategy or {"strategy": "constant", "fill_value": how}
    filled = POOLED[["age", "visits"]].astype("float64")
    filled["age"] = SimpleImputer(**strategy).fit_transform(filled[["age"]])
    theirs = StandardScaler().fit_transform(filled)
    assert np.allclose(ours, theirs, atol=1e-10, rtol=0)
    assert recipe.columns == ["age", "visits"]


def test_logs_splines_and_indicators():
    plan = Plan(["income", "age"], logs=["income"], splines={"income": 4}, indicators=["age"])
    recipe, ours = prepared(plan)
    assert recipe.columns == [
        "log(income)",
        "log(income) spline 1",
        "log(income) spline 2",
        "age",
        "age missing",
    ]
    assert recipe.variables == ["income"] * 3 + ["age"] * 2
    log = np.log(POOLED["income"])
    knots = np.log(np.quantile(POOLED["income"], [0.05, 0.35, 0.65, 0.95]))
    assert np.allclose(recipe.parts[0].knots, knots, atol=1e-12)
    assert np.allclose(ours["log(income)"], (log - log.mean()) / log.std(ddof=0), atol=1e-10)
    missing = POOLED["age"].isna().astype(float)
    expected = (missing - missing.mean()) / missing.std(ddof=0)
    assert np.allclose(ours["age missing"], expected, atol=1e-10)
    curve = ours["log(income) spline 2"].to_numpy()
    beyond = (log > knots[-1]).to_numpy()
    line = np.polyfit(log[beyond], curve[beyond], 1)
    assert np.allclose(np.polyval(line, log[beyond]), curve[beyond], atol=1e-9)  # linear there


def test_levels_are_those_of_all_sites_and_rare_ones_are_other():
    recipe, ours = prepared(Plan(["smoker", "ward"]))
    smoker, ward = recipe.parts
    assert (smoker.reference, smoker.levels) == ("never", ("current", "former"))
    assert (ward.reference, ward.levels) == ("A", ("B", "C", "other"))
    values = POOLED["smoker"].fillna("never")
    theirs = np.stack([values == "current", values == "former"], axis=1).astype(float)
    scaled = (theirs - theirs.mean(0)) / theirs.std(0)
    assert np.allclose(ours[["smoker = current", "smoker = former"]], scaled, atol=1e-10)
    rare = POOLED["ward"].str.startswith("rare").to_numpy()
    assert (ours["ward = other"].to_numpy() > 0).tolist() == rare.tolist()


def test_a_level_that_is_rare_at_one_site_only_is_not_other():
    letters = [pd.DataFrame({"x": list("a" * 20 + "b" * n)}) for n in (20, 3)]
    sites = LocalSites([SiteTable(f"s{k}", table) for k, table in enumerate(letters)])
    [part] = prepare(sites, Plan(["x"])).parts
    assert (part.reference, part.levels) == ("a", ("b",))


def test_a_column_of_texts_may_be_empty_at_a_site():
    full, empty = pd.DataFrame({"x": list("ab" * 20)}), pd.DataFrame({"x": [np.nan] * 20})
    sites = LocalSites([SiteTable("full", full), SiteTable("empty", empty)])
    [part] = prepare(sites, Plan(["x"])).parts
    assert {part.reference, *part.levels} == {"a", "b"}


def test_a_number_may_be_the_level_of_missing_values():
    sites = LocalSites([SiteTable("s", pd.DataFrame({"x": [1, 2, 2] * 20}))])
    [part] = prepare(sites, Plan(["x"], categories=["x"], missing={"x": 1.0})).parts
    assert part.fill == "1"


def test_two_columns_of_the_same_name_are_refused():
    table = pd.DataFrame({"x": np.arange(1.0, 31), "log(x)": np.arange(30) ** 2})
    with pytest.raises(FedcanonError, match=r"two columns would be called 'log\(x\)'"):
        prepare(LocalSites([SiteTable("s", table)]), Plan(["x", "log(x)"], logs=["x"]))


def test_levels_do_not_depend_on_the_type_of_the_column():
    grades = RNG.integers(1, 4, 60)
    gappy = pd.Series(grades, dtype="float64")
    gappy[:5] = np.nan
    tables = [pd.DataFrame({"grade": own}) for own in (grades, gappy, grades.astype(str))]
    sites = LocalSites([SiteTable(f"s{k}", table) for k, table in enumerate(tables)])
    [part] = prepare(sites, Plan(["grade"], categories=["grade"])).parts
    assert {part.reference, *part.levels} == {"1", "2", "3"}


def test_weights_are_repeated_rows():
    weighted = {name: t.assign(n=RNG.integers(0, 4, len(t))) for name, t in TABLES.items()}
    plan = Plan(["age", "visits", "income"], missing={"income": 5.0}, indicators=["age"])
    ours = prepare(LocalSites([SiteTable(n, t) for n, t in weighted.items()]), plan, "n")
    repeated = [
        SiteTable(name, t.loc[t.index.repeat(t["n"])].reset_index()) for name, t in weighted.items()
    ]
    theirs = prepare(LocalSites(repeated), plan)
    assert np.allclose(ours.means, theirs.means, rtol=1e-12)
    assert np.allclose(ours.scales, theirs.scales, rtol=1e-12)
    assert ours.parts[0].fill == pytest.approx(theirs.parts[0].fill, rel=1e-12)


def test_new_rows_without_a_logarithm_are_refused():
    parts = prepare(SITES, Plan(["income"], logs=["income"])).parts
    poor = SiteTable("Dover", TABLES["Cork"].assign(income=0.0))
    with pytest.raises(FedcanonError, match="'income' of the site Dover has values up to 0"):
        poor.plain(parts)


@pytest.mark.slow
@given(
    st.lists(
        st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=9),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.floats(0, 1), min_size=1, max_size=3),
)
@settings(max_examples=60, deadline=None)
def test_quantiles_are_exact(values, shares):
    guards = Guards(minimum_rows=1)
    sites = LocalSites(
        [SiteTable(f"s{k}", pd.DataFrame({"x": own}), guards) for k, own in enumerate(values)]
    )
    ordered = np.sort(np.concatenate(values))
    for share, found in zip(shares, quantiles(sites, {"x": shares})["x"], strict=True):
        place = share * (len(ordered) - 1)
        low, high = ordered[int(place)], ordered[min(int(place) + 1, len(ordered) - 1)]
        if place == int(place):
            assert found == low
        else:
            assert min(low, high) <= found <= max(low, high)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(["weight"]), "the site Aarhus has no column 'weight'"),
        (Plan(["age"], logs=["height"]), "logs names 'height'"),
        (Plan(["age"], splines={"age": 2}), "3 to 7 knots"),
        (Plan(["visits"], logs=["visits"]), "no logarithm"),
        (Plan(["smoker"], missing={"smoker": "sometimes"}), "no level of 'smoker'"),
        (Plan(["age"], missing={"age": "often"}), "filled with"),
        (Plan(["ward"], minimum_count=10_000), "no level of 'ward'"),
    ],
)
def test_what_cannot_be_prepared_is_refused(plan, words):
    with pytest.raises(FedcanonError, match=words):
        prepare(SITES, plan)


def test_sites_that_do_not_agree_are_named():
    odd = TABLES["Bergen"].assign(visits=["many"] * SIZES["Bergen"])
    sites = LocalSites([SiteTable("Aarhus", TABLES["Aarhus"]), SiteTable("Bergen", odd)])
    with pytest.raises(FedcanonError, match="texts at the site Bergen and numbers at the site Aar"):
        prepare(sites, Plan(["visits"]))


class TestGuards:
    def ask(self, guards, plan=None):
        return prepare(
            LocalSites([SiteTable("Aarhus", TABLES["Aarhus"], guards)]), plan or Plan(["age"])
        )

    def test_few_rows(self):
        with pytest.raises(FedcanonError, match="Aarhus refuses: it has 80 rows"):
            self.ask(Guards(minimum_rows=100))

    def test_columns_that_may_not_be_used(self):
        with pytest.raises(FedcanonError, match="'age' is none of the columns that may be used"):
            self.ask(Guards(columns=frozenset({"visits"})))

    def test_rare_levels_are_not_named(self):
        site = SiteTable("Aarhus", TABLES["Aarhus"], Guards(minimum_count=15))
        told = site.answer("levels", 1, {"columns": ["ward"]})
        counts = TABLES["Aarhus"]["ward"].value_counts()
        assert set(told) == {"rare", *(f"0/{k}" for k, n in counts.items() if n >= 15)}
        assert sum(told.values()) == 80

    def test_sums_over_few_sites(self):
        sites = LocalSites(
            [SiteTable(name, table, Guards(minimum_sites=3)) for name, table in TABLES.items()]
        )
        prepare(sites, Plan(["age"]))  # over three
        with pytest.raises(FedcanonError, match=r"Aarhus refuses: .* minimum_sites = 3 .* over 1"):
            required(each(sites, "counts", columns=["age"]))
        fewer = LocalSites(sites.tables[:2])
        with pytest.raises(FedcanonError, match="minimum_sites = 3 sites, not over 2"):
            prepare(fewer, Plan(["age"]))
