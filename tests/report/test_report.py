"""``fedcanon report``, and its page in a browser."""

import json
import shutil
import statistics

import numpy as np
import pytest
from PIL import Image, ImageStat

from fedcanon.report.page import write_report
from fedcanon.report.wording import byte_count
from fedcanon.runs.measures import frame
from fedcanon.runs.training import load, train
from tests.report.conftest import METHODS, PANELS, SEEDS
from tests.waiting import until


@pytest.fixture(scope="module")
def report(runs, tmp_path_factory):
    """The page about all finished runs."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(list(runs.values()), path)
    return path


@pytest.fixture(scope="module")
def seen(visit_for_long, report):
    """That page in a wide, light window; a test leaves it as it was."""
    return visit_for_long(report)


def last(runs, method):
    return [runs[f"{method}-{seed}"].records()[-1] for seed in SEEDS]


@pytest.mark.slow
def test_the_command_writes_one_small_file(fedcanon, runs, tmp_path):
    path = tmp_path / "r.html"
    names = [str(run.path) for run in runs.values()]
    code, out, _ = fedcanon("report", *names, names[0], "-o", str(path))
    assert code == 0
    assert "report written to" in out
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_size < 6e6
    assert path.read_text(encoding="utf-8").count('<th scope="row">fedcanon+-0</th>') == 1


def test_mistakes_are_one_sentence_and_leave_nothing_behind(fedcanon, runs, tmp_path):
    def refused(*arguments):
        code, out, err = fedcanon("report", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        return err

    good = str(runs["scaffold-0"].path)
    assert "there is no run 'absent'" in refused("absent", "-o", str(tmp_path / "r.html"))
    assert "there is no folder" in refused(good, "-o", str(tmp_path / "no" / "r.html"))
    assert "it is a folder" in refused(good, "-o", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_run_over_real_clients_tells_their_samples_and_no_partition(fedcanon, tmp_path):
    own = {"rounds": 2, "model": "linear", "engine": {"name": "serial"}}
    folder = train(own, folder=tmp_path / "run").folder
    config, data = folder / "config.toml", folder / "data.json"
    config.write_text(config.read_text().replace('"serial"', '"deployed"'))
    told = {"name": "the clients' own data", "label_counts": [], "samples": [1200, 34]}
    data.write_text(json.dumps({**json.loads(data.read_text()), **told}))
    page = tmp_path / "r.html"
    assert fedcanon("report", str(folder), "-o", str(page))[0] == 0
    assert "the clients&#39; own data · 1,234 samples, 10 classes" in page.read_text()
    code, out, _ = fedcanon("show", str(folder))
    assert code == 0
    for text in (page.read_text().partition("<script")[0], out):
        assert "own data" in text
        assert "dirichlet" not in text


def test_a_run_of_a_method_from_elsewhere_can_be_shown(fedcanon, tmp_path):
    folder = train(rounds=2, model="linear", folder=tmp_path / "run").folder
    config = folder / "config.toml"
    config.write_text(config.read_text().replace('name = "fedcanon+"', 'name = "mine"'))
    code, out, _ = fedcanon("show", str(folder))
    assert code == 0
    assert "mine" in out


def test_damaged_runs_are_named(fedcanon, tmp_path):
    folder = train(rounds=2, model="linear", folder=tmp_path / "run").folder
    page = tmp_path / "r.html"
    history, model = folder / "history.jsonl", folder / "model.safetensors"
    kept = history.read_bytes()
    for damaged in (b"{}\n", b"nonsense\n", b"[1]\n"):
        history.write_bytes(kept + damaged)
        code, _, err = fedcanon("report", str(folder), "-o", str(page))
        assert (code, page.exists()) == (2, False)
        assert "history.jsonl is damaged (line 4: " in err
    history.write_bytes(kept)
    model.write_bytes(model.read_bytes()[:40])
    code, _, err = fedcanon("report", str(folder), "-o", str(page))
    assert (code, page.exists()) == (2, False)
    assert "cannot read the model" in err


def test_the_page_needs_nothing_but_itself(seen, report):
    assert seen.text("h1") == "fedcanon+, scaffold on digits"
    for fact in ("1,437 samples, 10 classes", "dirichlet:0.2", "linear", "mcp", "0, 1, 2"):
        assert fact in seen.text("header")
    seen.page.wait_for_timeout(300)
    assert seen.requests == [report.as_uri()]


def test_curves_are_means_with_bands_of_the_records(seen, runs):
    drawn = "chart.data.map(({name, mode, x, y}) => ({name, mode, x, y}))"
    names = seen.page.eval_on_selector_all("#panels figure", "all => all.map(f => f.dataset.name)")
    assert names == PANELS
    for name, traces in zip(names, seen.charts(drawn), strict=True):
        lines = {trace["name"]: trace for trace in traces if trace["mode"] == "lines"}
        bands = {trace["name"]: trace for trace in traces if trace["mode"] == "none"}
        assert list(lines) == list(bands) == list(METHODS)
        for method in METHODS:
            tables = [frame(runs[f"{method}-{seed}"].records()) for seed in SEEDS]
            values = np.array([table[name] for table in tables], dtype=float)
            rounds = tables[0]["round"].tolist()
            assert lines[method]["x"] == rounds
            assert lines[method]["y"] == pytest.approx(values.mean(0), rel=1e-5, abs=1e-9)
            edge = [*values.max(0), *values.min(0)[::-1]]
            assert bands[method]["y"] == pytest.approx(edge, rel=1e-5, abs=1e-9)
    strokes = seen.charts("chart.querySelectorAll('path.js-line').length")
    assert strokes == [len(METHODS)] * len(PANELS)


def test_curves_can_be_drawn_against_seconds_and_bytes(seen, runs):
    shown = "[chart.layout.xaxis.title.text, Math.max(...chart.data.flatMap(t => t.x))]"
    titles = {
        "rounds": ("round", lambda r: r.round),
        "seconds": ("seconds of training", lambda r: r.cost.seconds),
        "bytes": ("bytes sent, both ways", lambda r: r.cost.bytes_down + r.cost.bytes_up),
    }
    for choice in ("bytes", "seconds", "rounds"):
        seen.page.click(f"#against >> text={choice}")
        title, position = titles[choice]
        furthest = max(statistics.mean(map(position, last(runs, m))) for m in METHODS)
        assert seen.charts(shown) == [[title, pytest.approx(furthest, rel=1e-4)]] * len(PANELS)
        assert title in seen.text("#panels figure")


def test_a_legend_entry_hides_its_curve(seen):
    strokes = "chart.querySelectorAll('path.js-line').length"
    button = seen.page.get_by_role("button", name="scaffold")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert seen.charts(strokes) == [1] * len(PANELS)
    hidden = "chart.data.filter(t => t.visible === false).map(t => t.name)"
    assert seen.charts(hidden) == [["scaffold"] * 2] * len(PANELS)  # line and band
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert seen.charts(strokes) == [2] * len(PANELS)


def test_the_table_is_the_mean_and_deviation_of_the_last_records(seen, runs):
    columns = {
        "f + h": (lambda r: r.objective, "{:.4g}", "± {:.2g}"),
        "loss f": (lambda r: r.loss, "{:.4g}", "± {:.2g}"),
        "accuracy": (lambda r: r.test["accuracy"], "{:.2%}", "± {:.2%}"),
        "‖G‖": (lambda r: r.gradient_norm, "{:.4g}", "± {:.2g}"),
        "zeros": (lambda r: r.sparsity, "{:.2%}", "± {:.2%}"),
        "seconds": (lambda r: r.cost.seconds, "{:,.1f}", "± {:.2g}"),
    }
    rows = seen.page.locator("table.results tbody tr")
    assert rows.count() == len(METHODS)
    for row, method in zip(rows.all(), METHODS, strict=True):
        records = last(runs, method)

        def cell(name, row=row):
            return row.locator(f'td[data-name="{name}"]').inner_text().split("\n")

        assert row.locator("th").inner_text() == f"{method} 3 runs"
        assert cell("rounds") == ["12"]
        for name, (measure, mean, deviation) in columns.items():
            values = [measure(record) for record in records]
            spread = statistics.stdev(values)
            expected = [mean.format(statistics.mean(values))]
            assert cell(name) == expected + [deviation.format(spread)] * bool(spread)
        cost = records[0].cost
        assert cell("prox calls") == [str(cost.server_prox + cost.client_prox)]
        assert cell("sent") == [byte_count(cost.bytes_down + cost.bytes_up)]


def test_clients_of_every_seed_can_be_seen(seen, runs):
    for seed in SEEDS:
        seen.page.select_option("#partition", label=f"digits · dirichlet:0.2 · seed {seed}")
        counts = np.array(runs[f"scaffold-{seed}"].data.label_counts)
        partition, losses = seen.charts(
            "chart.data.map(({x, y, customdata}) => [x, y, customdata])", "#clients"
        )
        (x, y, held) = partition[0]
        assert np.array_equal(counts[x, y], held)
        assert len(held) == (counts > 0).sum()
        for method, (_, values, sizes) in zip(METHODS, losses, strict=True):
            expected = runs[f"{method}-{seed}"].records()[-1].client_losses
            assert values == pytest.approx(expected, rel=1e-5)
            assert sizes == counts.sum(1).tolist()


@pytest.mark.slow
def test_many_clients_are_a_heat_map(visit, fedcanon, tmp_path):
    clients = {"count": 60, "participants": 5}
    train(rounds=1, model="linear", clients=clients, folder=tmp_path / "run")
    fedcanon("report", str(tmp_path / "run"), "-o", str(tmp_path / "r.html"))
    seen = visit(tmp_path / "r.html")
    (found,) = seen.charts("chart.data.map(({type, z}) => [type, z])", "#clients")[0]
    kind, shares = found
    assert (kind, np.shape(shares)) == ("heatmap", (10, 60))
    assert np.sum(shares, 0) == pytest.approx(np.ones(60), abs=1e-3)


def test_zeros_by_layer_are_those_of_the_models(seen, runs):
    traces = seen.charts("chart.data.map(({x, y}) => [x, y])", "#model")[0]
    for method, (shares, names) in zip(METHODS, traces, strict=True):
        models = [load(runs[f"{method}-{seed}"].path).model for seed in SEEDS]
        for share, name in zip(shares, names, strict=True):
            zeros = [(model.state_dict()[name] == 0).double().mean() for model in models]
            assert share == pytest.approx(float(np.mean(zeros)))


def test_only_settings_that_differ_are_listed(seen):
    keys = seen.page.locator("#differences tbody th").all_inner_texts()
    assert "algorithm.name" in keys
    assert not {"rounds", "seed", "model.name", "penalty.kappa"} & set(keys)
    assert "torch" in seen.text("#environment")


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_sticks_out(visit, report, width, scheme):
    seen = visit(report, width=width, scheme=scheme)
    sticking_out = """() => [...document.querySelectorAll("body *:not(.scroll *)")].filter(
        (e) => e.getBoundingClientRect().right > innerWidth + 0.5).map((e) => e.outerHTML)"""
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    assert seen.page.evaluate(sticking_out) == []
    assert seen.charts("chart.layout.width <= chart.clientWidth") == [True] * len(PANELS)


def test_charts_follow_the_window(seen):
    too_wide = "chart.layout.width - chart.clientWidth"
    for width in (390, 1280):
        seen.page.set_viewport_size({"width": width, "height": 900})
        until(lambda: seen.charts(too_wide) == [0] * len(PANELS))
        assert max(seen.charts("chart.clientWidth")) < width


def test_light_and_dark_differ_and_charts_follow(seen, tmp_path):
    colours = (
        "[chart.layout.font.color, chart.data.at(-1).line.color, chart.layout.xaxis.gridcolor]"
    )

    def brightness():
        seen.page.locator("#panels figure").first.screenshot(path=tmp_path / "look.png")
        return ImageStat.Stat(Image.open(tmp_path / "look.png").convert("L")).mean[0]

    light = seen.charts(colours)
    assert brightness() > 220
    seen.page.emulate_media(color_scheme="dark")
    until(lambda: all(a != b for a, b in zip(light[0], seen.charts(colours)[0], strict=True)))
    until(lambda: brightness() < 60)
    seen.page.emulate_media(color_scheme="light")
    until(lambda: seen.charts(colours) == light)
    until(lambda: brightness() > 220)


@pytest.mark.slow
def test_an_interrupted_run_has_a_page_without_a_model(visit, fedcanon, interrupted, tmp_path):
    page = tmp_path / "r.html"
    assert fedcanon("report", str(interrupted.path), "-o", str(page))[0] == 0
    seen = visit(page)
    assert seen.text(".status") == "interrupted"
    assert seen.text("#progress") == "round 4 of 12"
    assert seen.charts("chart.data.length") == [1] * len(PANELS)
    assert seen.text("#without-model") == (
        "A model is written at the end of a run; not yet by crashed."
    )
    assert not seen.page.locator("#layers").is_visible()
    assert not seen.page.locator("#legend button").count()


@pytest.mark.slow
def test_names_are_text_and_never_markup(visit, fedcanon, interrupted, tmp_path):
    strange = tmp_path / "<img src=x onerror=alert(1)>&amp;"
    strange.symlink_to(interrupted.path)
    fedcanon("report", str(strange), "-o", str(tmp_path / "r.html"))
    seen = visit(tmp_path / "r.html")
    assert seen.text("#runs tbody th") == strange.name
    assert strange.name in seen.text("#without-model")
    assert seen.requests == [(tmp_path / "r.html").as_uri()]


@pytest.mark.slow
def test_settings_are_text_and_never_markup(visit, fedcanon, runs, tmp_path):
    """Plotly takes labels for HTML with variables."""
    name = "<i>%{y}</i>&amp;"
    folder = shutil.copytree(runs["scaffold-0"].path, tmp_path / "run")
    config = folder / "config.toml"
    config.write_text(config.read_text().replace('name = "scaffold"', f'name = "{name}"'))
    fedcanon("report", str(folder), "-o", str(tmp_path / "r.html"))
    seen = visit(tmp_path / "r.html")
    assert seen.text("h1") == f"{name} on digits"
    hover = "(chart) => Plotly.Fx.hover(chart, [{curveNumber: 0, pointNumber: 2}])"
    seen.page.locator("#panels .chart").first.evaluate(hover)
    assert name in seen.page.locator("#panels .hovertext").first.text_content()
