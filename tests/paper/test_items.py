"""The tables and figures of the paper but Table VI, at the smallest scale, on the data they use."""

import json
import math
from pathlib import Path

import pytest
import torch

from fedcanon.cli.paper import Name
from fedcanon.objectives.models import MODELS
from fedcanon.paper import (
    costs,
    fig1,
    fig2,
    fig3,
    items,
    properties,
    prox,
    theory,
)
from fedcanon.paper.items import ITEMS
from fedcanon.paper.masks import MaskedL1, MaskedMCP, MaskedSCAD
from fedcanon.paper.methods import TIMED
from fedcanon.paper.outcome import Claim, Finding, Outcome, Scale, Table, markdown
from fedcanon.paper.quadratics import scattered_problem
from fedcanon.penalties import L1, MCP, SCAD

RESULTS = Path(__file__).parents[2] / "docs" / "paper" / "laptop"


def rows(outcome, number=0):
    return {row[0]: row[1:] for row in outcome.tables[number].rows}


def test_every_name_is_an_item():
    assert {str(name) for name in Name} == {*ITEMS, "all"}


@pytest.mark.slow
def test_all_runs_one_item_after_the_other(fedcanon, monkeypatch, tmp_path):
    """With the two that train nothing, so that it takes a moment."""
    monkeypatch.setattr(items, "ITEMS", {name: ITEMS[name] for name in ("datasets", "costs")})
    monkeypatch.setenv("FEDCANON_DATA", str(tmp_path))
    code, out, _ = fedcanon("paper", "all", "--scale", "smoke", "--folder", str(tmp_path / "out"))
    assert code == 0
    assert out.index("Table IV") < out.index("Table III")
    assert {path.name for path in (tmp_path / "out" / "smoke").iterdir()} == {"datasets", "costs"}


@pytest.mark.slow
def test_all_goes_on_after_an_item_without_data(fedcanon, monkeypatch, tmp_path):
    monkeypatch.setattr(items, "ITEMS", {name: ITEMS[name] for name in ("fig1", "costs")})
    monkeypatch.setenv("FEDCANON_DATA", str(tmp_path))
    code, out, err = fedcanon("paper", "all", "--scale", "smoke", "--folder", str(tmp_path / "out"))
    assert code == 2
    assert out.index("fig1: ") < out.index("Table III")
    assert "not run: fig1" in err


def test_table_three_is_counted_and_agrees(written):
    out, folder, kept = written("costs")
    assert out.count("✓") == 12  # eleven rows and the verdict
    assert [claim["verdict"] for claim in kept["claims"]] == ["agrees", "does not agree"]
    assert "from 2d to 1d floats per client, by 50%" in kept["claims"][1]["measured"]
    assert max(map(len, out.splitlines()[:-1])) <= 80
    assert kept["data"]["ZA1"] == {"prox": 10 * 6 + 1, "floats per d": 2}
    assert kept["data"]["FedCanon"] == {"prox": 1, "floats per d": 3}
    assert kept["data"]["FedCanon+"] == {"prox": 1, "floats per d": 2}
    assert {path.name for path in folder.iterdir()} == {"costs.json", "costs.md", "costs.tex"}
    assert (costs.N, costs.S, costs.K) == (10, 3, 5)


@pytest.mark.slow
@pytest.mark.data("a9a", "mnist", "fashion_mnist", "femnist", "cifar10", "cinic10", "tiny_imagenet")
def test_table_four_counts_what_is_at_hand(written):
    out, _, kept = written("datasets")
    assert "subsets: FEMNIST, CINIC-10, Tiny ImageNet" in " ".join(out.split())
    complete = {name for name, found in kept["data"].items() if found["state"] == "complete"}
    assert complete == {"a9a", "mnist", "fashion_mnist", "cifar10"}
    assert kept["data"]["a9a"]["test"] == 16_281


def test_absent_datasets_are_shown_as_absent(outcome, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDCANON_DATA", str(tmp_path))
    found = outcome("datasets")
    assert {row[-1] for row in found.tables[0].rows} == {"absent"}
    assert found.claims[0].verdict == "no verdict"


@pytest.mark.slow
@pytest.mark.data("mnist")
def test_table_one_times_both_forms_of_the_prox(outcome):
    found = outcome("prox")
    times = found.data["ResNet-18"]
    # torchvision's ResNet-18 has 11,689,512 parameters for 1,000 classes and three channels.
    assert times["parameters"] == 11_689_512 - 990 * 513 - 64 * 2 * 49
    for name, penalty in prox.PENALTIES["ours"].items():
        assert 0 < times["ours"][name] < times["masks"][name]
        assert rows(found)["ResNet-18"][0] == "11.2 M"
        assert penalty.rho < 1 / prox.STEP
    assert rows(found)["  the paper"][2:] == ("119.8 (1.38×)", "222.4 (2.57×)", "387.4 (4.47×)")
    assert len(found.figure.axes) == len(prox.PENALTIES["ours"])
    assert set(prox.PAPER) == {f"ResNet-{n}" for n in (18, 34, 50, 101)}
    assert {name.lower().replace("-", "") for name in prox.PAPER} <= set(MODELS)


@pytest.mark.parametrize("step", [0.1, 1.0])
@pytest.mark.parametrize(
    ("masked", "ours"),
    [(MaskedL1, L1), (MaskedMCP, MCP), (MaskedSCAD, SCAD)],
    ids=["l1", "mcp", "scad"],
)
def test_masks_give_the_numbers_of_the_penalty(masked, ours, step):
    x = 4 * torch.randn(10_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for kappa in (0.3, 1.0):
        torch.testing.assert_close(
            masked(kappa).prox(x, step), ours(kappa).prox(x, step), rtol=1e-12, atol=1e-14
        )


@pytest.mark.slow
def test_table_two_is_measured(outcome):
    found = outcome("properties")
    entries = rows(found)
    assert len(entries) == 15
    # By the paper's own analysis, and by that of the methods' authors.
    assert [cell[0] for cell in entries["FedCanon+"]][:5] == ["✓"] * 5
    assert [entries[m][0][0] for m in ("SCAFFOLD", "SCAFFNEW", "FedPD", "FedDyn")] == ["✗"] * 4
    assert [entries[m][2][0] for m in ("FedMiD", "FedDA", "ZA1")] == ["✗"] * 3
    assert [entries[m][3][0] for m in ("FedMiD", "FedDA")] == ["✗"] * 2
    solving = {name for name, cells in entries.items() if cells[4].startswith("✗")}
    assert solving == {"FedPD", "FedDyn", "FedDR", "FedADMM"}
    # The published FedMiD applies h twice: its limit is not argmin f + h.
    assert entries["FedMiD"][0] == "✗ (✓)"
    assert found.data["FedMiD"]["prox"] == (5 * 10 + 1, 5 * 40 + 1)
    assert math.isinf(found.data["FedDA"]["stationarity"])


def test_the_waves_of_table_two_are_not_convex():
    setting = properties.SETTINGS[Scale.smoke]
    problem = properties._waves(properties._quadratics(setting))
    start = problem.start.clone().requires_grad_()
    quadratics = [client.quadratic for client in problem.clients]
    value = sum(0.5 * (start - q.b) @ q.A @ (start - q.b) for q in quadratics) / len(quadratics)
    value = value + torch.cos(2 * start).sum() / 8
    assert problem.value(problem.start) == pytest.approx(value.item())
    gradient = torch.autograd.grad(value, start)[0]
    torch.testing.assert_close(problem.value_and_gradient(problem.start)[1], gradient)
    hessian_at_zero = sum(q.A for q in quadratics) / len(quadratics) - torch.eye(10) / 2
    assert float(torch.linalg.eigvalsh(hessian_at_zero).min()) < -0.05


@pytest.mark.slow
@pytest.mark.data("a9a")
def test_figure_one_on_a9a(written):
    out, folder, kept = written("fig1")
    setting = fig1.SETTINGS[Scale.smoke]
    curves = kept["data"]["loss and ‖G‖ by α"]["FedCanon"]
    assert [float(alpha) for alpha in curves] == list(setting.alphas)
    # A larger server step has come further, from the same start.
    assert len({records[0][1] for records in curves.values()}) == 1
    assert curves["0.1"][-1][1] < curves["0.02"][-1][1]
    assert (folder / "fig1.png").is_file()
    assert (folder / "fig1.pdf").is_file()
    runs = list((folder / "runs").iterdir())
    assert len(runs) == 2 * (len(setting.alphas) + len(setting.betas))
    before = {run: (run / "result.json").stat().st_mtime_ns for run in runs}
    again, _, _ = written("fig1")
    assert again == out
    assert before == {run: (run / "result.json").stat().st_mtime_ns for run in runs}


@pytest.mark.slow
@pytest.mark.data("fashion_mnist")
def test_figure_two_on_fashion_mnist(outcome):
    found = outcome("fig2")
    assert "subset: 500 of 60,000 training" in found.title
    assert [claim.verdict for claim in found.claims] == ["no verdict"] * 6
    assert [claim.best is not None for claim in found.claims] == [True] * 4 + [False] * 2
    assert set(rows(found)) == set(fig2.METHODS)
    for by_partition in found.settings["grids"].values():
        for grids in by_partition.values():
            assert set(grids) == set(fig2.METHODS)
            for grid in grids.values():
                assert [point["beta"] for point in grid] == [0.05, 0.1]
                assert all(point["validation_loss"] > 0 for point in grid)
    assert any("2 tuning trials of 2 rounds for constant and 2" in note for note in found.notes)
    assert len(found.figure.axes) == 2 * len(fig2.PARTITIONS)
    # With h = 0 and α = βK FedCanon is SCAFFOLD, option II: identity, up to rounding.
    for shown in fig2.PARTITIONS:
        equal = found.data["equal steps"][shown]
        losses = [
            [point[1] for point in equal[method]["round, loss, accuracy"][0]]
            for method in ("FedCanon", "SCAFFOLD")
        ]
        assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.slow
@pytest.mark.data("fashion_mnist")
def test_figure_three_on_fashion_mnist(outcome):
    found = outcome("fig3")
    assert set(found.data["seconds of a round"]) == set(fig3.METHODS)
    assert all(value > 0 for value in found.data["seconds of a round"].values())
    assert len(found.figure.axes) == 2 * len(fig3.PARTITIONS)
    panel = found.figure.axes[0]
    lines = {line.get_label(): line.get_xdata() for line in panel.get_lines()}
    setting = fig3.SETTINGS[Scale.smoke]
    for method, x in lines.items():
        assert x[-1] == pytest.approx(setting.rounds * found.data["seconds of a round"][method])


@pytest.mark.slow
@pytest.mark.data("fashion_mnist")
def test_table_five_has_the_ratios_of_the_paper(outcome):
    found = outcome("time")
    paper = rows(found, 2)
    assert paper["40"][1] == "2,364 (5.67× 2.09×)"  # the example in the paper's text
    assert paper["80"][3] == "7,201 (10.02× 1.77×)"
    first, _, last = (
        {line.get_label(): line for line in axes.get_lines()} for axes in found.figure.axes
    )
    assert last["ZA1"].get_ydata() == pytest.approx([4.81, 6.99, 9.74, 10.02], abs=0.005)
    # One legend for all panels, though the paper has no FedCanon+.
    assert all(line.get_color() == first[label].get_color() for label, line in last.items())
    for form in ("boolean masks", "one pass"):
        assert min(found.data[form]) == 1
        assert all(set(by_method) == set(TIMED) for by_method in found.data[form].values())
        assert min(min(by_method.values()) for by_method in found.data[form].values()) > 0


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_the_tables_of_the_page_are_those_of_the_numbers_beside_them(path):
    kept = json.loads(path.read_text(encoding="utf-8"))
    claims = []
    for told in kept["claims"]:
        best = told.get("best")
        finding = Finding(best["measured"], best["agrees"]) if best else None
        claims.append(Claim(told["paper"], told["measured"], told["agrees"], finding))
    tables = [Table(**table) for table in kept["tables"]]
    outcome = Outcome(kept["title"], kept["scale"], {}, tables, claims, notes=kept["notes"])
    assert markdown(outcome) == path.with_suffix(".md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_theorems_bound_what_is_measured_and_only_fedcanon_drifts(outcome):
    found = outcome("theory")
    assert [claim.verdict for claim in found.claims] == ["agrees"] * 3
    drift = found.data["‖G‖ by K"]
    steps = theory.SETTINGS[Scale.smoke].drift_steps
    # The drift is proportional to β(K − 1) to first order.
    assert drift["FedCanon"][2] / drift["FedCanon"][1] == pytest.approx(steps[2] - 1, rel=0.2)
    assert drift["FedCanon"][1] > 1e-3
    assert max(drift["FedCanon+"]) < 1e-4
    less, more = found.data["‖G‖ by κ"]["FedCanon"]
    assert more / less == pytest.approx(2, rel=0.2)


def test_the_constants_of_the_theory_problem_are_known():
    setting = theory.SETTINGS[Scale.smoke]
    problem = scattered_problem(setting.clients, setting.samples, setting.dimension)
    client = problem.clients[0]
    assert float(torch.linalg.eigvalsh(client.A).max()) == pytest.approx(1)
    for x in (problem.start, torch.zeros_like(problem.start)):
        gradients = torch.stack(
            [client.gradient(x, torch.tensor([j])) for j in range(client.samples)]
        )
        spread = (gradients - client.gradient(x, None)).square().sum(1).mean()
        assert float(spread) == pytest.approx(client.variance)
        direct = 0.5 * torch.stack([(x - p) @ client.A @ (x - p) for p in client.points]).mean()
        assert client.value(x) == pytest.approx(float(direct))
        v = x.clone().requires_grad_()
        value = 0.5 * torch.stack([(v - p) @ client.A @ (v - p) for p in client.points]).mean()
        torch.testing.assert_close(torch.autograd.grad(value, v)[0], client.full_gradient(x))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["fig9"], "'fig9' is not one of"),
        (["fig1", "--scale", "huge"], "'huge' is not one of"),
        (["fig1", "--row", "cifar10-cnn-iid"], "--row is for accuracy alone"),
        (["accuracy", "--row", "cifar"], "'cifar' is no row of Table VI at the scale laptop"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_mistakes_get_one_sentence(fedcanon, arguments, expected):
    code, _, err = fedcanon("paper", *arguments)
    assert code == 2
    assert expected in " ".join(err.replace("│", "").split())


def test_a_missing_dataset_gets_one_sentence(fedcanon, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDCANON_DATA", str(tmp_path))
    code, out, err = fedcanon("paper", "fig1", "--scale", "smoke", "--folder", str(tmp_path / "x"))
    assert code == 2
    assert "the dataset a9a is not in" in " ".join(err.split())
    assert not out


@pytest.mark.slow
def test_a_folder_that_cannot_be_made_gets_one_sentence(fedcanon, tmp_path):
    (tmp_path / "file").touch()
    code, _, err = fedcanon("paper", "costs", "--scale", "smoke", "--folder", f"{tmp_path}/file")
    assert code == 2
    assert "cannot write to" in " ".join(err.split())
