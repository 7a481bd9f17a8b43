"""Pictures of a study: curves, parts of the loss, positions and heat maps, for each draft model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from mdsd.studies.grid.folder import Study
from mdsd.studies.grid.plots.curves import curves_figure
from mdsd.studies.grid.plots.heat_maps import acceptance_heat_map, loss_heat_map
from mdsd.studies.grid.plots.losses import losses_figure
from mdsd.studies.grid.plots.scatter import scatter_figure
from mdsd.studies.grid.plots.slices import (
    FILTERS,
    NUM_DRAFTS,
    TEMPERATURE,
    ModelGroup,
    model_groups,
)
from mdsd.studies.panels import STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MOST_MODELS", "Picture", "study_figures", "study_pictures"]

MOST_MODELS = 6
"""Draft models that pictures are drawn of: the first ones."""


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure and what it is called.

    Attributes
    ----------
    file_name : str
    kind : str
        What figures of this kind have in common, as `_KINDS` has it.
    of : str
        Draft model, or models, it is about.
    figure : matplotlib.figure.Figure
    """

    file_name: str
    kind: str
    of: str
    figure: Figure


_KINDS: dict[str, Callable[[Study, ModelGroup], Figure | None]] = {
    "loss_parts": losses_figure,
    "acceptance_by_temperature": partial(curves_figure, axis=TEMPERATURE),
    "acceptance_by_n": partial(curves_figure, axis=NUM_DRAFTS),
    "acceptance_by_filter": partial(curves_figure, axis=FILTERS),
    "acceptance_heat_map": acceptance_heat_map,
    "verifier_loss_heat_map": loss_heat_map,
    "attained_against_bound": scatter_figure,
}


def study_pictures(study: Study) -> Iterator[Picture]:
    """Draw a study, one picture after the other.

    Parameters
    ----------
    study : Study

    Yields
    ------
    Picture
        By draft model. Those whose axis has a single value are left out.
    """
    import matplotlib as mpl

    for group in model_groups(study.rows)[:MOST_MODELS]:
        for kind, draw in _KINDS.items():
            with mpl.rc_context(STYLE):
                figure = draw(study, group)
            if figure is not None:
                yield Picture(f"{kind}{group.suffix}.png", kind, group.title, figure)


def study_figures(study: Study) -> dict[str, Figure]:
    """Draw all pictures of a study.

    Parameters
    ----------
    study : Study

    Returns
    -------
    dict of (str, matplotlib.figure.Figure)
        By file name. Pictures of an axis that has a single value are left out.
    """
    return {picture.file_name: picture.figure for picture in study_pictures(study)}
