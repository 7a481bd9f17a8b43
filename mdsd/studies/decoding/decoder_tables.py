"""Tables of decoders for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType

from mdsd.studies.decoding.decoder_settings import DecodeSettings, shown_tree
from mdsd.studies.fitting import FittedTable, Paragraph
from mdsd.studies.study_rows import DecoderRow, DrawnTreesRow
from mdsd.studies.terminal import counted


def decode_report(row: DecoderRow) -> RenderableType:
    """Lay out a single run: acceptance by depth, and what the run took.

    Parameters
    ----------
    row : DecoderRow
    """
    table = FittedTable("depth", "steps", "accepted")
    shares = zip(row.drafted_by_depth, row.acceptance_by_depth, strict=True)
    for depth, (steps, share) in enumerate(shares, start=1):
        table.add(str(depth), str(steps), f"{share:.3f}")
    total = row.drafting_seconds + row.target_seconds + row.verification_seconds
    spent = " · ".join(
        f"{name} {seconds / total:.0%}"
        for name, seconds in (
            ("drafting", row.drafting_seconds),
            ("target", row.target_seconds),
            ("verifying", row.verification_seconds),
        )
    )
    if row.scheme == "growing":
        tree = f"growing trees of {row.num_nodes} drafts at most"
    else:
        scheme = "chains" if row.scheme == "batch" else "tree"
        tree = f"{scheme} {shown_tree(row.tree, row.scheme)}"
    lines = (
        f"{row.verifier}, {row.draft}, {tree}",
        f"{counted(row.tokens, 'token')} in {counted(row.target_calls, 'call')} of the target: "
        f"{row.tokens_per_target_call:.2f} per call",
        f"{total:.2f} s: {spent}",
    )
    return Group(table, "", *(Paragraph(line, "dim") for line in lines))


def comparison_report(rows: Sequence[DrawnTreesRow], settings: DecodeSettings) -> RenderableType:
    """Lay out a comparison: one decoder a line, in the order given.

    Parameters
    ----------
    rows : sequence of DrawnTreesRow
    settings : DecodeSettings
    """
    table = FittedTable(
        "verifier", "draft distribution", "tree", "tokens/call", "difference", "verify"
    )
    for row in rows:
        differs = row.verifier != row.reference
        table.add(
            row.verifier,
            row.draft,
            shown_tree(row.tree, row.scheme),
            _with_error(f"{row.tokens_per_target_call:.2f}", row.stderr),
            _with_error(f"{row.difference:+z.2f}", row.difference_stderr) if differs else "",
            f"{row.verification_share:.1%}",
        )
    texts, trees = len(settings.seeds), settings.max_new_tokens
    nodes = max(row.num_nodes for row in rows)
    references = " or ".join(sorted({row.reference for row in rows}, reverse=True))
    notes = [
        f"{counted(trees, 'tree')} along each of {counted(texts, 'text')}, at most {nodes} tokens "
        "drafted for a call of the target; expected tokens, ± standard error over trees; "
        f"difference: to {references} on the same trees; verify: share of the time. Trees: "
        "children of a node by level, or number x length of chains.",
    ]
    if settings.unused:
        notes.append(f"not for this tree and these drafts: {', '.join(settings.unused)}")
    return Group(table, "", *(Paragraph(note, "dim") for note in notes))


def _with_error(mean: str, stderr: float | None) -> str:
    return mean if stderr is None else f"{mean} ± {stderr:.2f}"
