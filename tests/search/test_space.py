"""What --over takes, and what is refused."""

import pytest

from fedcanon.errors import FedcanonError
from fedcanon.search.space import Choices, Range, parse_space


def test_lists_keep_what_was_typed():
    space = parse_space(["algorithm.beta=0.01,0.1", "model.name=linear,mlp", "seed=0,1,2"])
    assert space.axes == {
        "algorithm.beta": Choices(("0.01", "0.1")),
        "model.name": Choices(("linear", "mlp")),
    }
    assert space.seeds == (0, 1, 2)
    assert not space.ranges


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x=auto,0.1", ("auto", "0.1")),
        ("x=dirichlet:0.2,iid", ("dirichlet:0.2", "iid")),
        ("x=my.module:factory", ("my.module:factory",)),
        ("x=[],['flip', 'crop']", ("[]", "['flip', 'crop']")),
        ("x={schedule='inverse', start=0.1},0.1", ("{schedule='inverse', start=0.1}", "0.1")),
        ("x='a,b',\"c\"", ("'a,b'", '"c"')),
    ],
)
def test_values_are_whatever_toml_has(text, expected):
    assert parse_space([text]).axes == {"x": Choices(expected)}


def test_ranges():
    axes = parse_space(["a=1e-4:1e-2:log", "b=1:20", "c=-1.0:1"]).axes
    assert axes == {"a": Range(1e-4, 1e-2, True), "b": Range(1, 20), "c": Range(-1.0, 1)}


def test_a_grid_has_every_combination_once():
    grid = parse_space(["a=1,2", "b=x,y,z"]).grid()
    assert len(grid) == len({tuple(point.items()) for point in grid}) == 6
    assert grid[:2] == [{"a": "1", "b": "x"}, {"a": "1", "b": "y"}]
    assert parse_space(["seed=0,1"]).grid() == [{}]


@pytest.mark.parametrize(
    ("overs", "expected"),
    [
        (["beta"], "--over takes key=value"),
        (["beta="], "--over takes key=value"),
        (["a=1", "a=2"], "--over a is given twice"),
        (["a=1,,2"], "separate values by single commas"),
        (["a=[1,2"], "separate values by single commas"),
        (["a=0.1,0.10"], "the value 0.1 is given twice"),
        (["a=1:2:linear"], "write a range as low:high or low:high:log"),
        (["a=1:2:log:3"], "write a range as low:high or low:high:log"),
        (["a=2:1"], "2 is not below 1"),
        (["a=0:1:log"], "starts above 0"),
        (["seed=0:5"], "a list of whole numbers"),
        (["seed=0,1.5"], "a list of whole numbers"),
        (["seed=-1"], "a list of whole numbers"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_mistakes(overs, expected):
    with pytest.raises(FedcanonError, match=expected.replace("[", r"\[")):
        parse_space(overs)
