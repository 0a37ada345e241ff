"""The Flower app of a site in a study."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
from flwr.app import ConfigRecord, Context, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.clientapp import ClientApp
from pydantic import Field

from fedcanon.data.own.tables import read_table
from fedcanon.errors import FedcanonError
from fedcanon.runs.config import Section, validated
from fedcanon.statistics.deployed.wire import answered
from fedcanon.statistics.site import StudySite
from fedcanon.tables.site import Guards

RECORD = "study"
"""The name of the record with a request, or with a reply."""


class SiteSettings(Section):
    """The entries under ``[node]`` in the site.toml of a site: its table and its guards.

    Args:
        client, state, identity: What every site tells its apps of itself.
        table: The path of the table, relative to the site's folder.
        name: The name of the site in messages and reports.
        columns: The columns that may be used, separated by commas; none allows all.
        minimum_rows, minimum_count, minimum_sites, parameters_per_row, penalised: See ``Guards``.
    """

    client: int
    state: str
    identity: str = ""
    table: str
    name: str = Field("", pattern=r"^[^\x00-\x1f]{0,60}$")
    columns: str = ""
    minimum_rows: Annotated[int, Field(ge=1)] = Guards.minimum_rows
    minimum_count: Annotated[int, Field(ge=1)] = Guards.minimum_count
    minimum_sites: Annotated[int, Field(ge=1)] = Guards.minimum_sites
    parameters_per_row: Annotated[float, Field(gt=0)] = Guards.parameters_per_row
    penalised: bool = True

    @property
    def guards(self) -> Guards:
        """What the site allows."""
        columns = frozenset(name.strip() for name in self.columns.split(",") if name.strip())
        return Guards(
            self.minimum_rows,
            self.minimum_count,
            self.minimum_sites,
            columns or None,
            self.parameters_per_row,
            self.penalised,
        )


def study_client() -> ClientApp:
    """Return the app of a site, which answers requests about its table."""
    app = ClientApp()

    @app.query()
    def answer(message: FlowerMessage, context: Context) -> FlowerMessage:
        torch.set_num_threads(1)  # for the same bits on every machine
        settings = validated(SiteSettings, dict(context.node_config))
        request = message.content.config_records[RECORD].get("request")
        if request is None:  # who are you?
            content: Mapping[str, Any] = {"client": settings.client, "name": settings.name}
        elif isinstance(request, str):
            content = {"reply": answered(_site(settings), request)}
        else:
            raise FedcanonError("a request must be a text.")
        return FlowerMessage(RecordDict({RECORD: ConfigRecord(dict(content))}), reply_to=message)

    return app


def _site(settings: SiteSettings) -> StudySite:
    path = Path(settings.state).parent / settings.table
    name = settings.name or f"site {settings.client}"
    return StudySite(name, read_table(path), settings.guards)
