"""Real runs, and a real browser."""

from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from fedcanon.runs.folder import RunFolder
from fedcanon.runs.observers import Observer
from fedcanon.runs.training import train
from tests.conftest import CHROMIUM
from tests.waiting import PATIENCE

METHODS = ("fedcanon+", "scaffold")
SEEDS = (0, 1, 2)
ROUNDS = 12
PANELS = ["objective", "loss", "accuracy", "gradient_norm", "sparsity", "worst_client_loss"]


class Crash(Observer):
    """Ends a run as a crash would."""

    def round(self, t):
        if t == 4:
            raise RuntimeError


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Finished runs of two methods with three seeds each, by their names."""
    root = tmp_path_factory.mktemp("runs")
    return {
        f"{method}-{seed}": _run(root / f"{method}-{seed}", method, seed)
        for method in METHODS
        for seed in SEEDS
    }


@pytest.fixture(scope="session")
def interrupted(tmp_path_factory):
    """A run that crashed after four rounds."""
    path = tmp_path_factory.mktemp("runs") / "crashed"
    with pytest.raises(RuntimeError):
        _run(path, "fedcanon+", 3, observers=[Crash()])
    return RunFolder(path)


def _run(path, method, seed, **others):
    train(rounds=ROUNDS, seed=seed, model="linear", algorithm=method, folder=path, **others)
    return RunFolder(path)


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium."""
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


class Visit:
    """A page in the browser, with all that went wrong on it and all that it asked for."""

    def __init__(self, browser, url, width=1280, scheme="light"):
        size = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, color_scheme=scheme)
        context.set_default_timeout(1000 * PATIENCE)
        self.page, self.errors, self.requests = context.new_page(), [], []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(url)

    def _heard(self, message):
        # A live page asks on while the server of its test ends: the browser says so by itself.
        ended = "net::ERR_CONNECTION_" in message.text
        if message.type in ("error", "warning") and not ended:
            self.errors.append(message.text)

    def text(self, selector):
        return self.page.inner_text(selector)

    def charts(self, expression, within="#panels"):
        """What an expression of ``chart`` gives for every chart in a part of the page."""
        charts = f"[...document.querySelectorAll('{within} .chart')]"
        return self.page.evaluate(f"{charts}.map((chart) => ({expression}))")


def _visits(browser):
    """Opens files and addresses, each in a fresh window; nothing may go wrong there."""
    visits = []

    def open_page(where, **options):
        url = where.as_uri() if isinstance(where, Path) else where
        visits.append(Visit(browser, url, **options))
        return visits[-1]

    yield open_page
    for opened in visits:
        opened.page.context.close()
    assert [opened.errors for opened in visits if opened.errors] == []


visit = pytest.fixture(_visits, name="visit")
visit_for_long = pytest.fixture(_visits, scope="module", name="visit_for_long")
