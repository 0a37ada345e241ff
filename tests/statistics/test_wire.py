"""Requests and answers as texts: the same bits as without them, and nothing hurts."""

import json
import random
from dataclasses import dataclass

import numpy as np
import pytest

from fedcanon import FedcanonError
from fedcanon.statistics.deployed.wire import answered, to_answer, to_request
from fedcanon.statistics.findings import investigate
from fedcanon.statistics.settings import StudySettings
from fedcanon.statistics.site import StudySite
from fedcanon.tables.site import Guards
from fedcanon.tables.sites import LocalSites
from tests.statistics.test_study import PLAN, SITES, TABLES

SETTINGS = StudySettings(label="ill", columns=PLAN.columns, splines={"age": 4}, folds=2)


@dataclass
class TextSites:
    """Sites that are reached by texts."""

    tables: list
    asked: list

    @property
    def names(self):
        return [site.name for site in self.tables]

    def ask(self, what, sites, arguments):
        text = to_request(what, sites, arguments)
        self.asked.append((what, text))
        return {
            site.name: to_answer(what, arguments, site.name, answered(site, text))
            for site in self.tables
        }


@pytest.fixture(scope="module")
def asked():
    """All requests of a study, whose result has the same bits as without texts."""
    sites = TextSites(SITES.tables, [])
    found = investigate(sites, SETTINGS, PLAN.columns)
    local = investigate(LocalSites(SITES.tables), SETTINGS, PLAN.columns)
    assert found.table.equals(local.table)
    assert found.goodness == local.goodness
    assert found.solution.vector.equal(local.solution.vector)
    return sites.asked


@pytest.mark.slow
def test_every_request_was_used_and_all_answers_are_numbers(asked):
    kinds = dict(asked)
    assert {"kinds", "counts", "levels", "below", "moments"} <= kinds.keys()
    assert {"expansions", "information", "qualities", "own_fit"} <= kinds.keys()
    for what, text in kinds.items():
        reply = json.loads(answered(SITES.tables[0], text))
        assert reply.keys() == {"answer"}, what
        assert all(np.asarray(v).dtype.kind in "if" for v in reply["answer"].values())


def mutated(value, rng):
    """A value of JSON with one thing changed somewhere."""
    odd = [None, -1, 10**30, 1.5, "x", "", [], {}, [[]], True, float("inf"), float("nan")]
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        kept = {k: v for k, v in value.items() if k != key or rng.random() < 0.9}
        return {**kept, rng.choice([key, key, "odd"]): mutated(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        place = rng.randrange(len(value))
        return [*value[:place], mutated(value[place], rng), *value[place + 1 :]]
    return rng.choice(odd)


def test_no_request_makes_a_site_fail(asked):
    rng = random.Random(0)
    kinds, refused = dict(asked), 0
    for _ in range(400):
        what, text = rng.choice(sorted(kinds.items()))
        reply = json.loads(answered(SITES.tables[0], json.dumps(mutated(json.loads(text), rng))))
        refused += "refusal" in reply
        if "refusal" in reply:
            assert len(reply["refusal"]) <= 2000, what
    assert refused > 200
    for text in ("", "{", "[]", "null", '{"what": "__init__", "sites": 1, "arguments": {}}'):
        assert "refusal" in json.loads(answered(SITES.tables[0], text))


@pytest.mark.slow
def test_no_answer_makes_the_server_fail(asked):
    rng = random.Random(1)
    kinds, refused = dict(asked), 0
    for _ in range(400):
        what, text = rng.choice(sorted(kinds.items()))
        reply = json.loads(answered(SITES.tables[0], text))
        found = to_answer(
            what, json.loads(text)["arguments"], "Oslo", json.dumps(mutated(reply, rng))
        )
        if isinstance(found, FedcanonError):
            refused += 1
            assert "Oslo" in str(found) or len(str(found)) < 100
        else:
            assert all(np.isfinite(np.asarray(v, dtype=float)).all() for v in found.values())
    assert refused > 100


def test_no_code_is_imported_that_a_server_names(asked):
    request = json.loads(dict(asked)["expansions"])
    request["arguments"]["model"]["family"] = "antigravity:Family"
    reply = json.loads(answered(SITES.tables[0], json.dumps(request)))
    assert reply == {"refusal": "a site imports no code that a server names."}
    request["arguments"]["model"]["family"] = "gaussian"
    request["arguments"]["model"]["options"] = [["name", "antigravity:Family"]]
    reply = json.loads(answered(SITES.tables[0], json.dumps(request)))
    assert "no option of it" in reply["refusal"]


def test_values_do_not_leave_in_messages(asked):
    request = json.loads(dict(asked)["expansions"])
    request["arguments"]["model"] |= {"family": "gaussian", "response": "sex", "classes": []}
    reply = json.loads(answered(SITES.tables[0], json.dumps(request)))
    assert "has a value that is no number, in row 0" in reply["refusal"]
    secret = StudySite("s", TABLES[0], Guards(columns=frozenset({"age", "height"})))
    reply = json.loads(answered(secret, to_request("counts", 3, {"columns": ["height"]})))
    assert reply["refusal"] == "the table of the site s has no column 'height': it has age."


def test_refusals_of_guards_arrive():
    text = to_request("counts", 1, {"columns": ["height"]})
    found = to_answer("counts", {}, "hospital 0", answered(SITES.tables[0], text))
    assert isinstance(found, FedcanonError)
    assert "has no column 'height'" in str(found)
