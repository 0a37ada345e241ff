"""What is published: the wheel works away from its sources, and both archives are whole."""

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
pytestmark = pytest.mark.slow


def call(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--quiet")
    call(sys.executable, "-m", "pip", "wheel", ROOT, *options, "--wheel-dir", folder)
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Run the command that the wheel brings, with its own package and the dependencies of ours."""
    target = tmp_path_factory.mktemp("installed")
    options = ("--no-deps", "--disable-pip-version-check", "--quiet", "--target", target)
    call(sys.executable, "-m", "pip", "install", wheel, *options)
    environment = {**os.environ, "PYTHONPATH": str(target), "FEDCANON_RUNS": str(target / "runs")}

    def run(*arguments):
        return call(*arguments, cwd=target, env=environment)

    found = run(sys.executable, "-c", "import fedcanon; print(fedcanon.__file__)").strip()
    assert Path(found).is_relative_to(target)
    return lambda *arguments: run(target / "bin" / "fedcanon", *arguments)


def test_the_wheel_holds_all_files_of_the_package(wheel):
    package = ROOT / "src"
    files = (path for path in package.rglob("*") if path.is_file())
    expected = {
        str(path.relative_to(package)) for path in files if path.parent.name != "__pycache__"
    }
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert {Path(name).suffix for name in expected} >= {".py", ".html", ".css", ".js", ".jinja"}


def test_the_installed_command_trains_and_reports(installed, tmp_path):
    assert installed("--version") == f"fedcanon {PROJECT['version']}\n"
    assert "group_lasso" in installed("list", "penalties")
    run, page = tmp_path / "run", tmp_path / "report.html"
    installed("run", "--set", "rounds=2", "--set", "model.name=linear", "--folder", run)
    assert "2 (all rounds done)" in installed("show", run)
    installed("report", run, "-o", page)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.flower
def test_the_installed_command_writes_an_app(installed, tmp_path):
    installed("deploy", "init", tmp_path / "app", "--set", "model.name=linear")
    assert (tmp_path / "app" / "app" / "server.py").is_file()


def test_the_source_archive_holds_all_that_is_kept(tmp_path):
    call(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path, cwd=ROOT)
    if not (ROOT / ".git").exists():
        pytest.skip("these sources are from such an archive")
    (path,) = tmp_path.iterdir()
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    kept = set(call("git", "ls-files", cwd=ROOT).splitlines())
    assert [name for name in sorted(kept - names) if not name.startswith(".")] == []


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert len(citation["references"][0]["authors"]) == 5
