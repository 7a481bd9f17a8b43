"""Steps over several rows: each comes out as if alone, and the models are asked together."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from mdsd.decoding import generate
from mdsd.decoding.choices import RandomChoices
from mdsd.decoding.decoder import make_decoder
from mdsd.decoding.enumeration import branches
from mdsd.decoding.rows import PlainRows, Row
from mdsd.errors import InvalidDistributionError
from mdsd.testing import sequence_law

from .toys import DRAFTS, PrefixModel, V, distance

PROMPTS, LENGTHS = ([1], [0, 2], [1, 3, 3], [2]), (9, 1, 14, 2)
TREE = [2, 2, 2]


def models(draft):
    several = [PrefixModel(2), PrefixModel(3)]
    return PrefixModel(1), several if draft == "independent" else several[0]


def start(seed=0):
    return [
        Row(prompt, length, RandomChoices(seed + place))
        for place, (prompt, length) in enumerate(zip(PROMPTS, LENGTHS, strict=True))
    ]


def step(decoder, rows):
    for row, tree in zip(rows, decoder.score(decoder.draw(rows)), strict=True):
        row.append(decoder.verify(tree, row.left, row.choices).token_ids)


@pytest.mark.parametrize("verifier", ["naive", "block"])
@pytest.mark.parametrize("draft", DRAFTS)
def test_a_row_does_not_depend_on_the_others(draft, verifier):
    options = {"draft": draft, "verifier": verifier, "tree": TREE}
    decoder = make_decoder(*models(draft), **options)
    rows = start()
    while active := [row for row in rows if row.left]:
        step(decoder, active)
    for place, row in enumerate(rows):
        alone = generate(
            *models(draft), PROMPTS[place], max_new_tokens=LENGTHS[place], rng=place, **options
        )
        assert row.prefix == [*PROMPTS[place], *alone.token_ids.tolist()]


def test_the_law_of_a_row_is_that_of_its_own_step():
    decoder = make_decoder(*models("without_replacement"), tree=[2])

    def first_token(choices):
        rows = start()
        rows[2] = Row(PROMPTS[2], 1, choices)
        step(decoder, rows)
        return tuple(rows[2].prefix[3:])

    law = defaultdict(float)
    for prob, tokens in branches(first_token):
        law[tokens] += prob
    alone = sequence_law(*models("without_replacement"), PROMPTS[2], 1, tree=[2])
    assert distance(law, alone) < 1e-12
    # The row beside it has another law.
    other = sequence_law(*models("without_replacement"), PROMPTS[3], 1, tree=[2])
    assert distance(law, other) > 0.01


class Counted(PlainRows):
    """Remembers how many prefixes of each row it was asked about, call by call."""

    def __init__(self, name, model):
        super().__init__(name, model)
        self.calls = []

    def logits(self, prefixes):
        self.calls.append([len(asked) for asked in prefixes])
        return super().logits(prefixes)


@pytest.mark.parametrize("draft", ["without_replacement", "independent"])
def test_each_model_is_asked_about_all_rows_in_one_call(draft):
    target, drafting = models(draft)
    decoder = make_decoder(target, drafting, draft=draft, tree=TREE)
    several = drafting if draft == "independent" else [drafting]
    counted = tuple(Counted("draft_model", model) for model in several)
    asked = Counted("target", target)
    decoder = replace(decoder, target=asked, draft_models=counted)
    step(decoder, start())
    # By level; nothing is drafted below the tokens that a row may still get.
    for each in counted:
        assert each.calls == [[1, 1, 1, 1], [2, 0, 2, 2], [4, 0, 4, 0]]
    assert asked.calls == [[15, 3, 15, 7]]


def test_plain_rows_ask_only_for_those_that_want_something():
    model = PrefixModel(1)
    found = PlainRows("target", model).logits([[[0], [0, 1]], [], [[3]]])
    assert model.calls == [[[0], [0, 1]], [[3]]]
    assert [len(logits) for logits in found] == [2, 0, 1]
    np.testing.assert_allclose(np.exp(found[2]), [model.probs([3])], rtol=0, atol=1e-15)


class Broken(PrefixModel):
    def logits(self, prefixes):
        return np.full((len(prefixes), V), np.nan)


class Wide(PrefixModel):
    def logits(self, prefixes):
        return np.zeros((len(prefixes), V + 1))


@pytest.mark.parametrize("kind", [Broken, Wide])
def test_errors_name_the_model(kind):
    good, bad = PrefixModel(1), kind(2)
    independent = {"draft": "independent", "tree": [2]}
    for arguments, name in (
        ((bad, good), "target"),
        ((good, bad), "draft_model"),
        ((good, [good, bad]), r"draft_model\[1\]"),
    ):
        decoder = make_decoder(*arguments, **(independent if "1" in name else {}))
        with pytest.raises(InvalidDistributionError, match=rf"{name}( has|:)"):
            step(decoder, start())
