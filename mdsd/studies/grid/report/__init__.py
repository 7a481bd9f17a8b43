"""The report of a study: one page of HTML that needs nothing else."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from mdsd._arguments import one_line
from mdsd.filters import CUT_COLUMNS
from mdsd.studies.grid.folder import Study
from mdsd.studies.grid.plots import MOST_MODELS, study_pictures
from mdsd.studies.grid.plots.slices import model_groups
from mdsd.studies.grid.report.findings import findings, remarks
from mdsd.studies.grid.report.sorted_tables import report_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["study_report"]

_COLOURS = 128
"""Colours of a picture in a page: a third of the bytes, and no difference to be seen."""

_LENGTH_PER_INCH = 100
"""Of a picture, in the pixels that a page is measured by; finer screens show more."""

_READING = {
    "loss_parts": "From the right: what no draft from this model saves, what another draft "
    "distribution would, what another verifier would; the grey rest is accepted. Draft "
    "distributions are sorted by their bounds, verifiers by acceptance.",
    "acceptance_by_temperature": "Points inside one another are verifiers that accept the same.",
    "acceptance_by_n": "Points inside one another are verifiers that accept the same.",
    "acceptance_by_filter": "Points inside one another are verifiers that accept the same.",
    "acceptance_heat_map": "A dash: n tokens cannot be drafted at any position, or nothing was "
    "computed.",
    "verifier_loss_heat_map": "What a better verifier would add to the acceptance for the same "
    "drafts. The colours follow the square root.",
    "attained_against_bound": "One point for each position; below the dashed line acceptance is "
    "lost to the verifier.",
}

_SETTINGS = {
    "draft_models": "draft models",
    "drafts": "draft distributions",
    "num_drafts": "n (draft tokens per step)",
    "monte_carlo_paths": "rejection paths of an estimate",
}
"""Names of settings in the page, where they are others than in the plan."""


def study_report(study: Study) -> str:
    """Write the report of a study: findings, settings, pictures, tables, data and versions.

    Parameters
    ----------
    study : Study
        From `mdsd.studies.grid.read_study`.

    Returns
    -------
    str
        A page of HTML with pictures, styles and script inside: it opens without a network, and a
        policy in it forbids all else. It depends on nothing but the study and the versions of the
        libraries. A picture takes about 60 kB and 1,000 rows 300 kB; there are pictures of at most
        6 draft models and tables of at most 10,000 rows, together about 6 MB.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__name__, "page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    plan = study.plan
    groups = len(model_groups(study.rows))
    return environment.get_template("report.html").render(
        plan=plan,
        name=study.name,
        num_rows=len(study.rows),
        findings=findings(study),
        remarks=remarks(study),
        settings=_settings(plan["settings"]),
        provenance={key: _said(value) for key, value in plan["data"]["provenance"].items()},
        pictures=groupby(_inlined(study), key=itemgetter("of")),
        groups_left_out=max(0, groups - MOST_MODELS),
        tables=report_tables(study.rows),
        libraries=plan.get("libraries", {}),
    )


def _settings(settings: Mapping[str, Any]) -> dict[str, str]:
    """Write what was asked for."""
    words = _SETTINGS | {name: name.replace("_", "-") for name in CUT_COLUMNS}
    cuts = {name: ["all" if v is None else v for v in settings[name]] for name in CUT_COLUMNS}
    return {words.get(key, key): _said(value) for key, value in {**settings, **cuts}.items()}


def _said(value: Any) -> str:
    """Write a value of the settings or of the provenance."""
    if isinstance(value, list) and not any(isinstance(each, (list, dict)) for each in value):
        return ", ".join(map(_said, value))
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _inlined(study: Study) -> Iterator[dict[str, Any]]:
    """Draw one picture after the other, as it stands in the page."""
    for picture in study_pictures(study):
        what, _, of = picture.figure.get_suptitle().partition("\n")
        width, height = _LENGTH_PER_INCH * picture.figure.get_size_inches()
        yield {
            "of": picture.of,
            "alt": f"{what}: {one_line(of)}",
            "reading": _READING[picture.kind],
            "png": base64.b64encode(_small_png(picture.figure)).decode(),
            "width": round(width),
            "height": round(height),
        }


def _small_png(figure: Figure) -> bytes:
    """Render a figure as the bytes of a PNG file with few colours."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    drawn = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    stream = io.BytesIO()
    drawn.quantize(_COLOURS, dither=Image.Dither.NONE).save(stream, format="png", optimize=True)
    return stream.getvalue()
