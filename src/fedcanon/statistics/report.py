"""The report of a study: one HTML file, and a table of coefficients."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from fedcanon.files import explained, write_whole
from fedcanon.report.wording import described
from fedcanon.statistics.findings import Findings, Goodness
from fedcanon.statistics.model import COX
from fedcanon.statistics.pictures import (
    plot_calibration,
    plot_choice,
    plot_forest,
    plot_stability,
)
from fedcanon.statistics.study import EVERYWHERE
from fedcanon.tables.recipe import Category, Number
from fedcanon.version import __version__

NOTHING = "–"

CONDITIONAL = (
    "Estimates, standard errors, intervals and p-values are those of the model without penalty on "
    "the selected columns. They are conditional on the selection: as the same data have chosen the "
    "columns, intervals are too narrow and p-values too small."
)


def write_report(findings: Findings, path: str | Path) -> None:
    """Write all that a study has found as one page; the file is there whole or not at all.

    Raises:
        FedcanonError: It cannot be written.
    """
    text = page(findings)
    with explained(f"cannot write the report {path}"):
        write_whole(Path(path), text)


def write_coefficients(findings: Findings, path: str | Path) -> None:
    """Write the table of coefficients as a CSV file.

    Raises:
        FedcanonError: It cannot be written.
    """
    with explained(f"cannot write the table {path}"):
        write_whole(Path(path), findings.table.to_csv())


def page(findings: Findings) -> str:
    """Return the page of a study."""
    environment = Environment(
        loader=PackageLoader("fedcanon.statistics", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = files("fedcanon.report.page") / "templates" / "page.css"
    return environment.get_template("report.html").render(
        title=f"{findings.settings.label}: a sparse model over {_sites(findings)}",
        style=Markup(style.read_text(encoding="utf-8")),
        facts=facts(findings),
        coefficients=coefficients(findings),
        level=f"{findings.settings.level:.0%}",
        conditional=CONDITIONAL if findings.table["refit"].notna().any() else "",
        qualities=qualities(findings),
        recipe=[_prepared(part) for part in findings.study.model.recipe.parts],
        pictures={name: _data_uri(figure) for name, figure in figures(findings).items()},
        false_selections=_false_selections(findings),
        notes=findings.notes,
        version=__version__,
    )


def facts(findings: Findings) -> dict[str, str]:
    """What was asked and what was found, a line each."""
    settings, model, goodness = findings.settings, findings.study.model, findings.goodness
    response = settings.label
    if len(model.classes) == 2:
        response += f", {model.classes[1]} against {model.classes[0]}"
    count = len(findings.selected) - model.outputs * model.has_intercept
    return {
        "response": f"{response} ({model.family})",
        "sites": f"{_sites(findings)} with {goodness[EVERYWHERE].quality.rows:,} rows",
        "columns": f"{count} of {model.size - model.outputs * model.has_intercept} selected"
        + (f", {', '.join(model.free)} always" if model.free else ""),
        "penalty": _penalty(findings),
        "κ": _choice(findings),
    }


def _penalty(findings: Findings) -> str:
    if not findings.study.model.penalised:
        return "none, since all columns are free"
    kappa = {} if findings.kappa is None else {"kappa": findings.kappa}
    return described({**findings.settings.penalty, **kappa})


def _choice(findings: Findings) -> str:
    """How κ was chosen, in words."""
    settings, chosen = findings.settings, findings.chosen
    if chosen is None:
        return "" if findings.kappa is None else "as given"
    count = len(chosen.path.kappas)
    if chosen.validation is None:
        return f"the smallest {settings.choose.upper()} of {count}"
    kind = "simplest within one error of the best" if settings.choose == "1se" else "best"
    folds = len(chosen.validation.sizes)
    way = f"{folds} sites left out" if settings.leave_one_site_out else f"{folds} folds"
    mean, error = chosen.validation.means[chosen.place], chosen.validation.errors[chosen.place]
    return f"the {kind} of {count} by {way}; {_compared(findings)} {mean:.4g} ± {error:.2g}"


def _compared(findings: Findings) -> str:
    """What was compared to choose κ, in words."""
    if findings.settings.choose in ("bic", "ebic"):
        return findings.settings.choose.upper()
    if findings.settings.measure == "deviance":
        what = "events" if findings.study.model.family == COX else "rows"
        return f"mean deviance of {what} left out"
    return "1 − AUC or concordance of rows left out"


def _sites(findings: Findings) -> str:
    count = len(findings.study.sites.names)
    return "one site" if count == 1 else f"{count} sites"


def coefficients(findings: Findings) -> list[dict[str, str]]:
    """The rows of the table of coefficients that are selected, as texts."""
    found = findings.table.loc[findings.selected]
    return [
        {
            "name": str(name),
            "coefficient": f"{row['coefficient']:.4g}",
            **{key: _number(row[key], "{:.4g}") for key in ("refit", "error", "low", "high")},
            "p": "< 0.0001" if row["p"] < 1e-4 else _number(row["p"], "{:.2g}"),
        }
        for name, row in found.iterrows()
    ]


def qualities(findings: Findings) -> list[dict[str, str]]:
    """How good the model is over all sites and at each, the worst first, as texts.

    Measures that the family does not have are left out.
    """
    goodness = findings.goodness
    sites = sorted((name for name in goodness if name != EVERYWHERE), key=_worst(goodness))
    rows = [{"site": name, **_texts(goodness[name])} for name in (EVERYWHERE, *sites)]
    used = [key for key in rows[0] if any(row[key] != NOTHING for row in rows)]
    return [{key: row[key] for key in used} for row in rows]


def _worst(goodness: Mapping[str, Goodness]) -> Any:
    return lambda name: goodness[name].explained


def _texts(good: Goodness) -> dict[str, str]:
    own = good.quality
    return {
        "rows": f"{own.rows:,}",
        "deviance": f"{own.deviance:.4g}",
        "explained": f"{good.explained:.1%}",
        "AUC": _number(own.auc, "{:.3f}"),
        "Brier": _number(own.brier, "{:.3f}"),
        "slope": _number(good.slope, "{:.2f}"),
        "concordance": _number(own.concordance, "{:.3f}"),
    }


def _number(value: float | None, form: str) -> str:
    return NOTHING if value is None or value != value else form.format(value)


def _prepared(part: Number | Category) -> dict[str, str]:
    if isinstance(part, Category):
        levels = ", ".join(part.levels)
        done = f"compared with {part.reference}: {levels}"
        return {"name": part.name, "done": done, "missing": part.fill}
    done = "logarithm" if part.log else "as it is"
    if part.knots:
        shown = ", ".join(f"{knot:.4g}" for knot in part.knots)
        done = f"{'logarithm, ' if part.log else ''}spline with knots at {shown}"
    if part.indicator:
        done += "; another column says what is missing"
    return {"name": part.name, "done": done, "missing": f"{part.fill:.6g}"}


def _false_selections(findings: Findings) -> str:
    found = findings.stability
    if found is None:
        return ""
    chosen = ", ".join(found.selected()) or "no column"
    return (
        f"In at least 80 % of {findings.settings.stability} halves of the rows were selected: "
        f"{chosen}. The expected number of columns that are selected in vain is at most "
        f"{found.false_selections():.2g}."
    )


def figures(findings: Findings) -> dict[str, Figure]:
    """The pictures of the page."""
    study, found = findings.study, dict[str, Figure]()
    if findings.chosen is not None:
        penalised = study.names[: study.model.outputs * study.model.penalised]
        found["choice"] = plot_choice(findings.chosen, penalised, _compared(findings))
    if findings.differences is not None:
        common = findings.table.loc[findings.differences.columns]
        found["forest"] = plot_forest(
            findings.differences, common["refit"].to_numpy(), common["error"].to_numpy()
        )
    if findings.calibration is not None:
        found["calibration"] = plot_calibration(findings.calibration)
    if findings.stability is not None:
        found["stability"] = plot_stability(findings.stability)
    return found


def _data_uri(figure: Figure) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg")
    return f"data:image/svg+xml;base64,{base64.b64encode(buffer.getvalue()).decode()}"
