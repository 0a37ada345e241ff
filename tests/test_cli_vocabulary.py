"""The same thing has the same name in all commands."""

import pytest
from typer.main import get_command

from fedcanon.cli.app import app


def parameters(group, before=""):
    """Every parameter with the name of its command."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from parameters(command, f"{name} ")
        for parameter in command.params:
            yield before + name, parameter


EVERYTHING = list(parameters(get_command(app)))


def options(flag):
    return {command: p for command, p in EVERYTHING if flag in p.opts}


def test_places_and_files_have_one_name():
    assert not [command for flag in ("--to", "--output", "--config") for command in options(flag)]
    assert {"run", "sweep", "path", "paper", "export"} <= options("--folder").keys()
    assert options("--report").keys() == options("-o").keys() == {"report", "glm"}


def test_a_configuration_is_an_argument():
    found = {command: p for command, p in EVERYTHING if p.name == "config"}
    assert {"run", "check", "sweep", "path", "attack", "expose", "deploy init"} == found.keys()
    assert all(p.param_type_name == "argument" and not p.required for p in found.values())


def test_set_takes_the_keys_of_a_configuration():
    forms = {command: p.metavar for command, p in options("--set").items()}
    assert forms.pop("data") == forms.pop("evaluate") == "data.KEY=VALUE"
    assert len(forms) >= 6
    assert set(forms.values()) == {"KEY=VALUE"}


def test_data_takes_the_options_of_the_dataset(fedcanon):
    code, out, _ = fedcanon("data", "synthetic", "--set", "data.d=7")
    assert code == 0
    assert "inputs 7" in out


@pytest.mark.parametrize("setting", ["d=7", "data.partition=iid", "rounds=3", "data.d"])
def test_data_refuses_other_settings(fedcanon, setting):
    code, _, err = fedcanon("data", "synthetic", "--set", setting)
    assert code == 2
    assert "such as data.test=new.csv" in err
    assert "--partition say" in err


def test_compare_takes_a_file_as_other_commands_do(fedcanon, tmp_path):
    path = tmp_path / "job.toml"
    path.write_text('rounds = 2\n[model]\nname = "linear"\n')
    code, out, _ = fedcanon("compare", str(path), "fedavg", "fedcanon+")
    assert code == 0
    assert "linear with 650 parameters" in out
    code, _, err = fedcanon("compare", str(path))
    assert code == 2
    assert "say what to compare" in err
