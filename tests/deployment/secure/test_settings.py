"""Secure sums by settings: what the operator and the sites type, and what is refused."""

import tomllib
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedcanon import FedcanonError, FedCanonPlus
from fedcanon.deployment import Participant
from fedcanon.deployment.configured import deployment_on
from fedcanon.deployment.flower.simulation import FlowerSimulation
from fedcanon.deployment.operate.copying import copy_of
from fedcanon.deployment.operate.folder import DeploymentFolder
from fedcanon.deployment.secure.configured import secured
from fedcanon.deployment.secure.identity import Identity
from fedcanon.deployment.secure.participant import SecureParticipant
from fedcanon.deployment.site import read_site
from fedcanon.deployment.site.flower import private_folder
from fedcanon.engines import Rules
from fedcanon.penalties import Zero
from fedcanon.runs.config import Config, changed, load_config
from tests.problems import quadratics

pytestmark = pytest.mark.flower

SECURE = ("deployment.secure=true", 'deployment.state="client"', "deployment.minimum=3")


def settings(*more):
    return [
        word for setting in ("model.name=linear", *SECURE, *more) for word in ("--set", setting)
    ]


@pytest.fixture
def app(fedcanon, tmp_path):
    code, _, err = fedcanon("deploy", "init", str(tmp_path / "app"), "--clients", "4", *settings())
    assert code == 0, err
    return tmp_path / "app"


def test_a_trial_has_identities_and_says_who_makes_them_in_earnest(fedcanon, app):
    config = load_config(app / "app" / "run.toml")
    assert config.deployment.secure
    assert len(set(config.deployment.identities)) == 4
    for client, public in enumerate(config.deployment.identities):
        site = app / "sites" / str(client)
        assert (site / "identity").stat().st_mode & 0o077 == 0
        code, out, _ = fedcanon("site", "identity", str(site))
        assert (code, out.strip()) == (0, public)
    assert "fedcanon site identity" in (app / "README.md").read_text()


def test_identities_that_are_given_stay_and_each_site_makes_its_own(fedcanon, tmp_path):
    given = [Identity.new().public for _ in range(4)]
    code, _, _ = fedcanon(
        *("deploy", "init", str(tmp_path / "app"), "--clients", "4"),
        *settings(f"deployment.identities={given}"),
    )
    assert code == 0
    assert load_config(tmp_path / "app" / "app" / "run.toml").deployment.identities == given
    site = tmp_path / "app" / "sites" / "2"
    assert not (site / "identity").exists()
    code, first, _ = fedcanon("site", "identity", str(site))
    assert code == 0
    assert fedcanon("site", "identity", str(site))[1] == first
    assert len(bytes.fromhex(first.strip())) == 32


def test_a_run_without_secure_sums_has_no_identities(fedcanon, tmp_path):
    fedcanon("deploy", "init", str(tmp_path / "app"), "--set", "model.name=linear")
    assert not list((tmp_path / "app").rglob("identity"))
    assert "identity" not in (tmp_path / "app" / "README.md").read_text()


def test_the_app_of_a_site_is_told_where_its_identity_is(app):
    site = read_site(app / "sites" / "1")
    with private_folder(site) as private:
        node = tomllib.loads((private / "node.toml").read_text())
    assert Path(node["identity"]) == app / "sites" / "1" / "identity"


def test_a_copy_for_a_dry_run_has_identities_of_its_own(app, tmp_path):
    original = load_config(app / "app" / "run.toml").deployment.identities
    copy, _ = copy_of(DeploymentFolder(app), tmp_path / "copy")
    own = load_config(copy.path / "app" / "run.toml").deployment.identities
    assert len(own) == 3
    assert not set(own) & set(original)
    for client, public in enumerate(own):
        assert Identity.read(copy.site(client) / "identity").public == public


class TestClient:
    def config(self, identities, **more) -> Config:
        return changed(
            load_config(),
            {
                "deployment.secure": True,
                "deployment.minimum": 4,
                "deployment.identities": [identity.public for identity in identities],
                **{key.replace("__", "."): value for key, value in more.items()},
            },
        )

    def participant(self, client=1):
        rules = Rules(FedCanonPlus(), Zero())
        return Participant(client, rules, quadratics(clients=1).clients[0])

    def test_it_is_made_of_the_settings(self, tmp_path):
        identities = [Identity.new() for _ in range(4)]
        identities[1].write(tmp_path / "identity")
        weights = {"clients__weights": "samples", "deployment__samples": [10, 30, 40, 20]}
        config = self.config(identities, **weights)
        made = secured(self.participant(), config, tmp_path, tmp_path / "identity")
        assert isinstance(made, SecureParticipant)
        assert (made.member.minimum, made.member.weight) == (4, 0.75)
        assert made.member.identities == [identity.public for identity in identities]

    @pytest.mark.parametrize(
        ("file", "states", "more", "sentence"),
        [
            (True, False, {}, "needs a folder for the secrets"),
            (False, True, {}, "cannot read the identity"),
            (True, True, {"client": 2}, "entry 2 of deployment.identities is not the identity"),
            (True, True, {"client": 9}, "entry 9 of deployment.identities is not the identity"),
            (True, True, {"clients__weights": "samples"}, "the samples of all clients"),
        ],
    )
    def test_what_is_missing_is_said(self, file, states, more, sentence, tmp_path):
        identities = [Identity.new() for _ in range(4)]
        if file:
            identities[1].write(tmp_path / "identity")
        client = more.pop("client", 1)
        config = self.config(identities, **more)
        with pytest.raises(FedcanonError, match=sentence):
            secured(
                self.participant(client),
                config,
                tmp_path if states else None,
                tmp_path / "identity",
            )


def test_secure_sums_without_identities_or_real_clients_are_refused():
    config = changed(load_config(), {"deployment.secure": True, "deployment.minimum": 3})
    with pytest.raises(FedcanonError, match=r"deployment.secure needs deployment.identities"):
        deployment_on(None, config)
    with pytest.raises(FedcanonError, match="secure sums are for real clients"):
        FlowerSimulation(config)(None, None)
    assert deployment_on(None, changed(config, {"deployment.secure": False})).identities == ()
