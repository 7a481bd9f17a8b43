"""The figures of `docs/trees.md`: weights on a tree, and accepted tokens by layer.

::

    python tools/tree_figures.py docs/figures

Half a minute. The first figure is of the embedded n-grams, which change a little from one version
of Python to the next.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mdsd._typing import FloatArray
from mdsd.decoding import TableModel, embedded_pair
from mdsd.decoding.choices import RandomChoices
from mdsd.decoding.decoder import make_decoder
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.layers import LayerVerification
from mdsd.decoding.rows import Row
from mdsd.studies.panels import STYLE
from mdsd.studies.planning.plots import leaf_places

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROMPT, SEED = "The method", 23
TREE = [3, 2, 1]

DRAFTS = ("with_replacement", "without_replacement")
LOOKS = {  # Okabe and Ito's colours
    "layers": ("#D55E00", "o"),
    "block": ("#0072B2", "s"),
    "optimal": ("#009E73", "^"),
    "kseq": ("#E69F00", "D"),
    "traversal": ("#CC79A7", "v"),
    "rrs": ("#56B4E9", "P"),
}
VOCAB_SIZE, TREES = 30, 200


def drawn_tree(models: Any, prompt_ids: list[int], draft: str, seed: int) -> DraftedTree:
    """Draw a tree after a prompt, and have the target look at it.

    Parameters
    ----------
    models : pair of Model
        Target and draft model.
    prompt_ids : list of int
    draft : str
    seed : int
    """
    decoder = make_decoder(*models, draft=draft, verifier="optimal", tree=TREE)
    row = Row(prompt_ids, len(TREE) + 1, RandomChoices(seed))
    (tree,) = decoder.score(decoder.draw([row]))
    return tree


def weights_figure() -> Figure:
    """Draw the weights that `layers` gives to the strings of one tree."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    pair = embedded_pair()
    models = pair.target, pair.draft_model
    tree = drawn_tree(models, pair.vocabulary.encode(PROMPT), "without_replacement", SEED)
    shape, layers = tree.shape, LayerVerification().layers(tree)
    weights = np.zeros(shape.num_nodes + 1)
    for layer in layers:
        for string in layer.strings:
            weights[string.nodes[0]] = string.weight
    places = leaf_places(shape)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 4.0), dpi=120.0, layout="constrained")
        axis = figure.subplots()
        for node in range(1, shape.num_nodes + 1):
            ends = (shape.parents[node], node)
            axis.plot(
                [places[end] for end in ends],
                [shape.depths[end] for end in ends],
                color="#0072B2" if weights[node] else "0.75",
                linewidth=0.8 + 5.0 * weights[node],
                linestyle="-" if weights[node] else ":",
                zorder=1,
            )
        axis.scatter(
            places,
            shape.depths,
            s=25.0 + 900.0 * weights,
            color=["#0072B2" if weight else "0.75" for weight in weights],
            edgecolors="white",
            zorder=2,
        )
        for node in range(shape.num_nodes + 1):
            piece = pair.vocabulary.decode([int(tree.token_ids[node])])
            word = PROMPT if node == 0 else piece.replace("\n", "\\n").replace(" ", "\u00b7")
            axis.annotate(
                f"{word}\n{weights[node]:.3f}",
                (places[node], shape.depths[node]),
                xytext=(0, -8 - 15.0 * np.sqrt(weights[node])),
                textcoords="offset points",
                ha="center",
                va="top",
                fontsize=8,
                color="black" if weights[node] else "0.45",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85},
                zorder=3,
            )
        right = max(places) + 0.75
        axis.text(right, -0.2, "sum of\nthe layer", ha="left", fontsize=8)
        for depth in range(shape.depth + 1):
            total = layers[depth].weight if depth < len(layers) else 0.0
            axis.text(right, depth, f"{total:.3f}", ha="left", va="center", fontsize=9)
        axis.set_ylim(shape.depth + 0.55, -0.45)
        axis.set_xlim(-0.6, right + 0.6)
        axis.set_yticks(range(shape.depth + 1))
        axis.set_xticks([])
        axis.spines["bottom"].set_visible(False)
        axis.set_ylabel("layer (drafted tokens)")
    return figure


def accepted_by_layer(draft: str) -> dict[str, FloatArray]:
    """Compute the chance that a token of each layer is accepted, for every tree and verifier.

    Parameters
    ----------
    draft : str

    Returns
    -------
    dict of str to ndarray of float64, shape (trees, depth)
        By verifier. Each tree is of models of its own, and the same for all verifiers.
    """
    names = [name for name in LOOKS if name != "kseq" or draft == "with_replacement"]
    found: dict[str, list[FloatArray]] = {name: [] for name in names}
    for seed in range(TREES):
        rng = np.random.default_rng([VOCAB_SIZE, seed])
        logits = 2.0 * rng.normal(size=(VOCAB_SIZE, VOCAB_SIZE))
        noisy = logits + rng.normal(size=logits.shape)
        models = TableModel.from_logits(logits), TableModel.from_logits(noisy)
        tree = drawn_tree(models, [0], draft, seed)
        for name in names:
            decoder = make_decoder(*models, draft=draft, verifier=name, tree=TREE)
            found[name].append(decoder.verification.accepted_by_depth(tree))
    return {name: np.array(rows) for name, rows in found.items()}


def layers_figure() -> Figure:
    """Draw accepted tokens by layer, a panel for each way of drafting."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.0, 3.6), dpi=120.0, layout="constrained")
        for axis, draft in zip(figure.subplots(1, 2, sharey=True), DRAFTS, strict=True):
            chances = accepted_by_layer(draft)
            depths = np.arange(1, len(TREE) + 1)
            reference = chances["rrs"].sum(axis=1)
            for place, (name, rows) in enumerate(chances.items()):
                colour, marker = LOOKS[name]
                mean, error = rows.mean(axis=0), rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
                total = rows.sum(axis=1)
                paired = (total - reference).std(ddof=1) / np.sqrt(len(rows))
                ahead = f"{(total - reference).mean():+.3f} \u00b1 {paired:.3f}"
                print(f"{draft:20} {name:10} {total.mean():.3f}", *np.round(mean, 3), ahead)
                axis.errorbar(
                    depths + 0.05 * (place - (len(chances) - 1) / 2),
                    mean,
                    error,
                    color=colour,
                    marker=marker,
                    markersize=5.0,
                    linewidth=1.0,
                    capsize=2.0,
                    label=f"{name}  {total.mean():.2f}",
                )
            axis.set_title(draft.replace("_", " "), fontsize=9)
            axis.set_xticks(depths)
            axis.set_xlabel("layer")
            axis.grid(axis="y", color="0.9")
            axis.set_axisbelow(True)
            axis.set_ylim(0.0, 1.0)
            axis.legend(frameon=False, fontsize=8, title="accepted in all", title_fontsize=8)
        figure.axes[0].set_ylabel("probability of accepting\na token of the layer")
    return figure


def main() -> None:
    """Write both pictures into a folder."""
    parser = argparse.ArgumentParser(description="The figures of docs/trees.md.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in ("tree_weights", weights_figure), ("accepted_by_layer", layers_figure):
        figure().savefig(folder / f"{name}.png", metadata={"Software": None})


if __name__ == "__main__":
    main()
