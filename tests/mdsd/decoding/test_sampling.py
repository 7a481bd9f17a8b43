"""From logits to laws, one rule for all rows and all models."""

from __future__ import annotations

import numpy as np
import pytest

import mdsd
from mdsd.decoding.sampling import FilteredRows, Sampling
from mdsd.errors import InvalidArgumentError, InvalidDistributionError
from mdsd.filters import Filters

LOGITS = np.random.default_rng(0).normal(size=(3, 6)) * 2.0
PREFIXES = [[0], [0, 1], [0, 1, 2]]

SETTINGS = [{}, {"temperature": 0.0}, {"temperature": 0.7, "top_k": 3, "top_p": 0.8}]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_filters(settings):
    found = Sampling(Filters(**settings)).probs(PREFIXES, LOGITS, "target")
    assert found.tolist() == mdsd.probs_from_logits(LOGITS, **settings).tolist()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_rows_on_demand_are_the_same(settings):
    sampling = Sampling(Filters(**settings))
    rows = FilteredRows(sampling, PREFIXES, LOGITS, "target")
    whole = sampling.probs(PREFIXES, LOGITS, "target")
    for node in (2, 0, 2):
        np.testing.assert_allclose(rows[node], whole[node], rtol=0, atol=1e-16)
        assert not rows[node].flags.writeable
    assert rows[1] is rows[1]
    assert len(rows) == 3


def test_rows_anew_are_worked_out_again():
    rows = FilteredRows(Sampling(), PREFIXES, LOGITS, "target")
    first, again = rows[1], rows.anew()
    assert again[1] is not first
    assert again[1].tolist() == first.tolist()


def test_processor_sees_prefix_and_logits_of_each_row():
    seen = []

    def processor(prefix, logits):
        seen.append((prefix, logits.tolist()))
        return logits + np.eye(6)[prefix[-1]]

    found = Sampling(logits_processor=processor).probs(PREFIXES, LOGITS, "target")
    assert seen == list(zip(PREFIXES, LOGITS.tolist(), strict=True))
    expected = mdsd.probs_from_logits(LOGITS + np.eye(6)[[0, 1, 2]])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_narrow_logits_are_widened(dtype):
    found = Sampling().probs(PREFIXES, LOGITS.astype(dtype), "target")
    assert found.dtype == np.float64
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=0, atol=1e-15)


@pytest.mark.parametrize("returned", [np.zeros(5), None, "abc"], ids=repr)
def test_processor_that_returns_something_else(returned):
    sampling = Sampling(logits_processor=lambda prefix, logits: returned)
    with pytest.raises(InvalidDistributionError, match="logits_processor"):
        sampling.probs(PREFIXES, LOGITS, "target")


def test_a_bad_row_names_the_model():
    bad = LOGITS.copy()
    bad[1, 4] = np.nan
    with pytest.raises(InvalidDistributionError, match=r"draft_model: .*row 1: index 4 is nan"):
        Sampling().probs(PREFIXES, bad, "draft_model")
    with pytest.raises(InvalidDistributionError, match="empty support"):
        Sampling().probs([[0]], [[-np.inf, -np.inf]], "target")


@pytest.mark.parametrize(
    "option",
    [{"temperature": -1.0}, {"temperature": [1.0]}, {"top_k": -2}, {"top_p": 0.0}],
    ids=str,
)
def test_bad_filters(option):
    with pytest.raises(InvalidArgumentError, match=next(iter(option))):
        Filters(**option)


def test_a_processor_that_is_none():
    with pytest.raises(InvalidArgumentError, match="logits_processor"):
        Sampling(logits_processor=3)


def test_a_processor_may_change_what_it_is_given():
    def processor(prefix, logits):
        prefix.clear()
        logits[0] = -np.inf
        return logits

    given, prefixes = LOGITS.copy(), [list(prefix) for prefix in PREFIXES]
    found = Sampling(logits_processor=processor).probs(prefixes, given, "target")
    assert (found[:, 0] == 0.0).all()
    assert given.tolist() == LOGITS.tolist()
    assert prefixes == PREFIXES
