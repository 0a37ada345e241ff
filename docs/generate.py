"""Writes the pages that follow from the code, at every build of the documentation.

One page per penalty of the registry, and their gallery. A new penalty gets its page without any
change here, unless it has parameters without defaults, which ``EXAMPLES`` must give, or a new
module, which ``FAMILIES`` must name.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
import sys
from pathlib import Path
from typing import Any

import griffe
import mkdocs_gen_files
from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).parent))
import pictures

from fedcanon.errors import FedcanonError
from fedcanon.penalties import PENALTIES, Penalty, Separable, TotalVariation, Zero

EXAMPLES: dict[str, dict[str, Any]] = {
    "weighted_l1": {"kappa": 1e-3, "weights": (1.0, 0.5, 2.0)},
    "cardinality": {"count": 1000},
}
"""Values for parameters without defaults."""

PICTURED: dict[str, Any] = {
    "kappa": 1.0,
    "kappa1": 0.5,
    "kappa2": 0.5,
    "delta": 1.0,
    "eps": 1.0,
    "weights": (2.0,),
    "count": 1,
}
"""Values at which a penalty is drawn: the defaults are too small to see."""

FAMILIES = {
    "separable": "Convex, entry by entry",
    "folded": "Not convex, entry by entry",
    "radial": "Norms and groups",
    "norms": "Norms and groups",
    "group": "Norms and groups",
    "matrix": "Low rank",
    "sequence": "Sequences",
    "constraints": "Constraints",
    "combine": "No penalty",
}
"""A heading for the penalties of each module."""

LAYER = (200, 64)
"""The shape for which B is printed: the first layer of the default network."""


def pictured(cls: type[Penalty]) -> tuple[Figure, str]:
    """The picture of a penalty, and the parameters at which it is drawn."""
    names = [field.name for field in dataclasses.fields(cls)]
    values = {name: PICTURED[name] for name in names if name in PICTURED}
    if "axis" in names:
        values.pop("weights", None)
        # Folded penalties of groups have no factor √(size of the group).
        kappa = 2.0 if "form" in names else 0.6
        values |= {name: kappa for name in values if name.startswith("kappa")}
        draw = pictures.rows
    elif "shape" in names:
        draw = pictures.singular_values
    elif issubclass(cls, TotalVariation):
        draw = pictures.sequence
    elif issubclass(cls, Separable | Zero):
        draw = pictures.curves
    else:
        draw = pictures.plane
    return draw(cls(**values)), ", ".join(f"{name} = {value}" for name, value in values.items())


def write_picture(path: str, figure: Figure) -> None:
    """Write ``path``-light.svg and ``path``-dark.svg."""
    for palette, text in pictures.svg(figure).items():
        with mkdocs_gen_files.open(f"{path}-{palette}.svg", "w") as file:
            file.write(text)


def show(path: str, description: str) -> str:
    """Markdown for a picture that follows the palette."""
    return "\n".join(
        f"![{description}]({path}-{palette}.svg#only-{palette})" for palette in pictures.INK
    )


def toml(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, str):
        return f'"{value}"'
    return str(list(value)) if isinstance(value, tuple) else str(value)


def docstring(cls: type[Penalty]) -> dict[str, Any]:
    """The text, the parameters and the examples in the docstring of a penalty."""
    sections = griffe.parse_google(griffe.Docstring(inspect.getdoc(cls) or ""), warnings=False)
    return {section.kind.value: section.value for section in sections}


def parameters(cls: type[Penalty]) -> str:
    """A table of the fields of a penalty."""
    fields = dataclasses.fields(cls)
    if not fields:
        return "It has no parameters."
    described = docstring(cls)["parameters"]
    meanings = {p.name: " ".join(p.description.split()) for p in described}
    lines = ["| parameter | type | default | meaning |", "|---|---|---|---|"]
    for field in fields:
        required = field.default is dataclasses.MISSING
        default = "required" if required else f"`{toml(field.default)}`"
        kind = inspect.formatannotation(field.type).strip("'").replace("|", "or")
        kind = {
            "Form": '`"scaled"` or `"lambda"`',
            "Groups": "number, lists or named lists of indices, or None",
        }.get(kind, f"`{kind}`")
        lines.append(f"| `{field.name}` | {kind} | {default} | {meanings[field.name]} |")
    return "\n".join(lines)


def examples(cls: type[Penalty]) -> str:
    """The examples of a penalty in Python, if its docstring has some."""
    parts = [
        f"```pycon\n{text}\n```" if kind.value == "examples" else text
        for kind, text in docstring(cls).get("examples", [])
    ]
    return "\n\n".join(["## In Python", *parts]) if parts else ""


def snippet(name: str, cls: type[Penalty]) -> str:
    """The ``[penalty]`` table of a configuration."""
    values = {
        field.name: EXAMPLES.get(name, {}).get(field.name, field.default)
        for field in dataclasses.fields(cls)
    }
    given = [f"{key} = {toml(value)}" for key, value in values.items() if value is not None]
    return "\n".join(["```toml", "[penalty]", f'name = "{name}"', *given, "```"])


def number(value: float) -> str:
    """A number, or the sign for infinity."""
    return "∞" if math.isinf(value) else f"{value:.4g}"


def facts(penalty: Penalty) -> str:
    """ρ, the domain of the prox and B, at the parameters of the TOML example."""
    try:
        bound = number(penalty.subgradient_bound(LAYER))
    except FedcanonError:
        bound = "as stated above"
    rho = penalty.rho
    lines = ["| at these values | |", "|---|---|"]
    if penalty.in_theory:
        lines.append(f"| ρ, weak convexity | {number(rho)} |")
        lines.append(f"| largest step of the prox, 1/ρ | {number(1 / rho if rho else math.inf)} |")
    lines.append(f"| B = sup ‖h′‖² on a {LAYER[0]} × {LAYER[1]} layer | {bound} |")
    return "\n".join(lines)


OUTSIDE = """!!! warning "Outside the theory"

    No ρ makes this function weakly convex. Its prox is computed exactly, but no theorem covers it:
    use it as a heuristic, or take `mcp` or `scad`, which are weakly convex.
"""


def page(name: str, cls: type[Penalty]) -> str:
    """The page of one penalty."""
    penalty = cls(**EXAMPLES.get(name, {}))
    first, _, body = docstring(cls)["text"].partition("\n")
    figure, drawn_at = pictured(cls)
    write_picture(f"penalties/images/{name}", figure)
    drawn = f"Drawn with {drawn_at}." if drawn_at else ""
    parts = [
        f"# {first.rstrip('.')}",
        f"`{name}` in a configuration, `fedcanon.penalties.{cls.__name__}` in Python.",
        "" if penalty.in_theory else OUTSIDE,
        re.sub(r"^#", r"\\#", body.strip(), flags=re.MULTILINE),  # no heading
        show(f"images/{name}", first),
        drawn,
        "## Parameters",
        parameters(cls),
        "## In a configuration",
        snippet(name, cls),
        facts(penalty),
        examples(cls),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def card(name: str, cls: type[Penalty]) -> str:
    """The penalty's place in the gallery."""
    first = (inspect.getdoc(cls) or "").partition("\n")[0].rstrip(".")
    penalty = cls(**EXAMPLES.get(name, {}))
    rho = f"ρ = {number(penalty.rho)}" if penalty.rho else "convex"
    mark = rho if penalty.in_theory else "outside the theory"
    images = "".join(
        f'<img src="images/{name}-{palette}.svg#only-{palette}" alt="">' for palette in pictures.INK
    )
    return (
        f'<a href="{name}/"><strong><code>{name}</code></strong>{images}'
        f'<small>{first}</small><small class="mark">{mark}</small></a>'
    )


def penalties() -> None:
    """Every page of a penalty, the gallery, and their places in the navigation."""
    families: dict[str, dict[str, type[Penalty]]] = {family: {} for family in FAMILIES.values()}
    for name, cls in PENALTIES.items():
        families[FAMILIES[cls.__module__.rpartition(".")[2]]][name] = cls
    gallery, entries = [], []
    for family, members in families.items():
        cards = "".join(card(name, cls) for name, cls in members.items())
        gallery.append(f'## {family}\n\n<div class="gallery">{cards}</div>')
        entries.append({family: [{name: f"penalties/{name}.md"} for name in members]})
        for name, cls in members.items():
            with mkdocs_gen_files.open(f"penalties/{name}.md", "w") as file:
                file.write(page(name, cls))
    index = Path("docs/penalties/index.md").read_text(encoding="utf-8")
    with mkdocs_gen_files.open("penalties/index.md", "w") as file:
        shown = "\n\n".join(["ρ below is at the default parameters.", *gallery])
        file.write(index.replace("<!-- gallery -->", shown))
    for section in mkdocs_gen_files.config["nav"]:
        section.get("Penalties", []).extend(entries)


penalties()
