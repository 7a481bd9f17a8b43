"""The exact law of the number of tokens that a step accepts."""

from __future__ import annotations

import numpy as np
import pytest

import mdsd
from mdsd.decoding import TableModel, TreeShape
from mdsd.errors import InvalidArgumentError, InvalidTokenError
from mdsd.testing import accepted_law

from .toys import PrefixModel, SameRow

TARGET, DRAFT_MODEL = PrefixModel(1, 3), PrefixModel(2, 3)


def test_single_drafts_by_hand():
    def overlap(prefix):
        return np.minimum(TARGET.probs(prefix), DRAFT_MODEL.probs(prefix))

    first = overlap([0])
    second = sum(first[token] * overlap([0, token]).sum() for token in range(3))
    found = accepted_law(TARGET, DRAFT_MODEL, [0], verifier="single", num_drafts=1, depth=2)
    expected = [1.0 - first.sum(), first.sum() - second, second]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)


def test_one_level_accepts_at_the_rate_of_the_plan():
    law = mdsd.WithoutReplacement(DRAFT_MODEL.probs([0]), 2)
    rate = mdsd.RRSVerifier().plan(TARGET.probs([0]), law).acceptance_rate
    found = accepted_law(TARGET, DRAFT_MODEL, [0], tree=[2])
    np.testing.assert_allclose(found, [1.0 - rate, rate], rtol=0, atol=1e-14)


def test_leaves_of_different_depths():
    tree = TreeShape([-1, 0, 0, 2, 3])
    found = accepted_law(TARGET, DRAFT_MODEL, [0], tree=tree)
    assert found.shape == (4,)
    assert (found > 0.0).all()
    assert found.sum() == pytest.approx(1.0, abs=1e-14)


def test_the_root_alone_accepts_nothing():
    assert accepted_law(TARGET, DRAFT_MODEL, [0], tree=TreeShape([-1])).tolist() == [1.0]


def test_nothing_counts_behind_an_end_token():
    model = TableModel([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    options = {"num_drafts": 1, "depth": 3}
    assert accepted_law(model, model, [0], **options).tolist() == [0.0, 0.0, 0.0, 1.0]
    ended = accepted_law(model, model, [0], eos_token_id=2, **options)
    assert ended.tolist() == [0.0, 0.0, 1.0, 0.0]


def test_a_wrong_verifier_shows():
    same = SameRow(np.zeros(3))
    options = {"draft": "with_replacement", "tree": [2]}
    assert accepted_law(same, same, [0], verifier="rrs", **options)[1] == pytest.approx(1.0)
    naive = accepted_law(same, same, [0], verifier="naive", **options)[1]
    assert naive == pytest.approx(5 / 9, abs=1e-15)


@pytest.mark.parametrize(
    ("prompt", "options", "error", "named"),
    [
        ([0], {"colour": "red"}, InvalidArgumentError, "accepted_law.*colour"),
        ([0], {"max_new_tokens": 3}, InvalidArgumentError, "max_new_tokens"),
        ([0], {"depth": 0}, InvalidArgumentError, "depth"),
        ([3], {}, InvalidTokenError, "prompt_ids"),
        ([], {}, InvalidTokenError, "prompt_ids"),
    ],
    ids=str,
)
def test_bad_arguments(prompt, options, error, named):
    with pytest.raises(error, match=named):
        accepted_law(TARGET, DRAFT_MODEL, prompt, **options)
