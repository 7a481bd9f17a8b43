"""Draft models over another vocabulary."""

from __future__ import annotations

import numpy as np
import pytest

from mdsd.decoding import MappedModel, map_vocabulary
from mdsd.errors import InvalidArgumentError, InvalidDistributionError, InvalidTokenError

from .toys import PrefixModel, SameRow


def test_masses_go_where_the_map_says():
    found = map_vocabulary([[0.125, 0.25, 0.625], [0.5, 0.0, 0.5]], [4, 0, 2], 6)
    assert found.tolist() == [[0.25, 0.0, 0.625, 0.0, 0.125, 0.0], [0.0, 0.0, 0.5, 0.0, 0.5, 0.0]]
    assert found.flags.c_contiguous


def test_one_vector_and_many_axes():
    one = map_vocabulary([0.25, 0.75], [1, 0], 3)
    assert one.tolist() == [0.75, 0.25, 0.0]
    rows = np.random.default_rng(0).dirichlet(np.ones(3), size=(2, 5))
    found = map_vocabulary(rows, [2, 0, 3], 4)
    assert found.shape == (2, 5, 4)
    for index in np.ndindex(2, 5):
        assert found[index].tolist() == map_vocabulary(rows[index], [2, 0, 3], 4).tolist()


def test_same_target_id_adds_up():
    assert map_vocabulary([0.25, 0.25, 0.5], [1, 1, 0], 2).tolist() == [0.5, 0.5]


def test_tokens_the_target_lacks_are_left_out_in_proportion():
    assert map_vocabulary([0.5, 0.125, 0.375], [-1, 2, 0], 3).tolist() == [0.75, 0.0, 0.25]


def test_inputs_stay_as_they_are():
    probs, ids = np.array([0.5, 0.5], dtype=np.float32), np.array([1, -1], dtype=np.int8)
    found = map_vocabulary(probs, ids, 2)
    assert (probs.tolist(), ids.tolist()) == ([0.5, 0.5], [1, -1])
    assert (found.dtype, found.tolist()) == (np.float64, [0.0, 1.0])


@pytest.mark.parametrize(
    ("probs", "row"), [([1.0, 0.0], ""), ([[0.5, 0.5], [1.0, 0.0]], " row 1")], ids=["one", "rows"]
)
def test_no_mass_left(probs, row):
    with pytest.raises(InvalidDistributionError, match=f"draft_probs{row} has no mass"):
        map_vocabulary(probs, [-1, 0], 2)


class TestMappedModel:
    def test_laws_and_prefixes(self):
        own = PrefixModel(0, vocab_size=3)
        model = MappedModel(own, [5, 1, 0], 6)
        found = np.exp(model.logits([[5, 3, 0], [1]]))
        # Token 3 is unknown to the draft model, and left out.
        expected = map_vocabulary([own.probs([0, 2]), own.probs([1])], [5, 1, 0], 6)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)
        assert own.calls == [[[0, 2], [1]]]

    def test_unknown_tokens_read_as_one_of_its_own(self):
        own = PrefixModel(0, vocab_size=3)
        MappedModel(own, [5, 1, 0], 6, unknown_token_id=1).logits([[3, 5, 2]])
        assert own.calls == [[[1, 0, 1]]]

    def test_first_of_several_draft_tokens_is_read(self):
        own = PrefixModel(0, vocab_size=3)
        MappedModel(own, [1, 1, -1], 2).logits([[1, 0]])
        assert own.calls == [[[0]]]

    def test_no_mass_left(self):
        own = SameRow([-np.inf, 0.0])
        with pytest.raises(InvalidDistributionError, match="no mass"):
            MappedModel(own, [0, -1], 2).logits([[0]])

    @pytest.mark.parametrize("token", [-1, 2, 0.0])
    def test_bad_unknown_token(self, token):
        with pytest.raises(InvalidArgumentError, match="unknown_token_id"):
            MappedModel(SameRow([0.0, 0.0]), [0, 1], 2, unknown_token_id=token)

    def test_bad_map(self):
        with pytest.raises(InvalidTokenError, match="target_token_ids"):
            MappedModel(SameRow([0.0, 0.0]), [0], 2)
