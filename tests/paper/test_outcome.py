"""What an item leaves behind: files, and numbers that survive the way into them."""

import json
import math

from markdown import Markdown
from matplotlib.figure import Figure

from fedcanon.paper.outcome import (
    Claim,
    Finding,
    Outcome,
    Scale,
    Table,
    judged,
    latex,
    markdown,
    write,
)

TABLE = Table("K & |S|", ("", "ℓ1 of 5 %", "a_b"), [("FedCanon", "1.0 ± 0.1", "✓")])
CLAIM = Claim("h is slow", "it is not", False)


def made(**changes):
    fields = {
        "title": "A demonstration",
        "scale": Scale.laptop,
        "settings": {"K": 10},
        "tables": [TABLE],
        "claims": [CLAIM],
        "data": {"losses": (1.0, 0.123456789), 10: math.inf},
    }
    return Outcome(**fields | changes)


def test_every_form_holds_the_table_and_the_verdict(tmp_path):
    figure = Figure()
    figure.subplots().plot([0, 1], [1, 0])
    paths = write("demo", made(figure=figure), tmp_path / "new" / "folder")
    assert [path.suffix for path in paths] == [".json", ".md", ".tex", ".png", ".pdf"]
    kept = json.loads(paths[0].read_text(encoding="utf-8"))
    assert kept["item"] == "demo"
    assert kept["data"] == {"losses": [1.0, 0.123457], "10": None}
    assert kept["claims"][0]["verdict"] == "does not agree"
    assert "| FedCanon | 1.0 ± 0.1 | ✓ |" in paths[1].read_text(encoding="utf-8")
    assert "| h is slow | it is not | does not agree |" in paths[1].read_text(encoding="utf-8")
    assert paths[3].read_bytes().startswith(b"\x89PNG")
    assert paths[4].read_bytes().startswith(b"%PDF")


def test_latex_escapes_what_it_must(tmp_path):
    tex = write("demo", made(), tmp_path)[2].read_text(encoding="utf-8")
    assert r"\caption{K \& $|$S$|$}" in tex
    assert r" & $\ell$1 of 5 \% & a\_b \\" in tex
    assert r"FedCanon & 1.0 $\pm$ 0.1 & $\checkmark$ \\" in tex
    assert tex.count("{") == tex.count("}")


def test_latex_has_greek_letters():
    shown = latex(made(tables=[Table("αβγηκμρσφ", ("",), [])]))
    letters = r"$\alpha$$\beta$$\gamma$$\eta$$\kappa$$\mu$$\rho$$\sigma$$\phi$"
    assert rf"\caption{{{letters}}}" in shown


def test_markdown_keeps_stars():
    table = Table("φ − φ* + αE", ("", "φ*"), [("a *", "1")])
    shown = markdown(made(tables=[table]))
    page = Markdown(extensions=["tables"]).convert(shown)
    assert "<em>φ − φ* + αE</em>" in page
    assert "<td>a *</td>" in page


def test_no_figure_no_picture(tmp_path):
    assert [path.suffix for path in write("demo", made(), tmp_path)] == [".json", ".md", ".tex"]


def test_two_kinds_of_steps_are_two_columns(tmp_path):
    claims = [Claim("it is ahead", "by 2", True, Finding("by −1", False)), CLAIM]
    paths = write("demo", made(claims=claims), tmp_path)
    kept = json.loads(paths[0].read_text(encoding="utf-8"))["claims"]
    assert kept[0]["verdict"] == "agrees"
    assert kept[0]["best"] == {"measured": "by −1", "agrees": False, "verdict": "does not agree"}
    assert "best" not in kept[1]
    page = paths[1].read_text(encoding="utf-8")
    assert "| the paper | with constant steps | with the best known steps |" in page
    assert "| it is ahead | agrees: by 2 | does not agree: by −1 |" in page
    assert "| h is slow | does not agree: it is not | – |" in page
    assert [c.best and c.best.agrees for c in judged(Scale.smoke, claims)] == [None, None]


def test_the_smallest_scale_gives_no_verdicts():
    assert [claim.verdict for claim in judged(Scale.smoke, [CLAIM])] == ["no verdict"]
    assert judged(Scale.laptop, [CLAIM]) == [CLAIM]
