"""Kinds of drafts as a user's own package has them; `test_seams.py` installs this file as one."""

from __future__ import annotations

from itertools import product

import numpy as np

import mdsd
from mdsd.drafts import DraftDistribution


class SharpenedDraft(DraftDistribution):
    """Independent draws from q**power, renormalised: with power 1 the draft with replacement."""

    name = "sharpened"
    options = ("power",)
    successive = True

    def __init__(self, draft_probs, num_drafts, power):
        q = np.asarray(draft_probs, dtype=np.float64) ** power
        self.q, self.power = q / q.sum(), power
        self.num_drafts, self.vocab_size = num_drafts, len(q)

    @classmethod
    def example_kinds(cls, num_drafts):
        return (cls.kind(**dict.fromkeys(cls.options, 2)),)

    def hit_probs(self, order):
        inside = np.concatenate([[0.0], np.cumsum(self.q[order])])
        hits = 1.0 - (1.0 - np.minimum(inside, 1.0)) ** self.num_drafts
        hits[-1] = 1.0
        return hits

    def sample(self, rng, size=None):
        shape = (self.num_drafts,) if size is None else (size, self.num_drafts)
        return np.random.default_rng(rng).choice(self.vocab_size, shape, p=self.q)

    def prob(self, draft_token_ids):
        return self.q[np.asarray(draft_token_ids)].prod(axis=-1)

    def next_probs(self, drafted):
        return self.q

    def tuples(self):
        for ids in product(range(self.vocab_size), repeat=self.num_drafts):
            chance = float(self.q[list(ids)].prod())
            if chance > 0.0:
                yield ids, chance


class PickyDraft(SharpenedDraft):
    """Refuses a draft model that is certain: what a constructor says is what a batch says."""

    name = "picky"
    options = ()

    def __init__(self, draft_probs, num_drafts):
        super().__init__(draft_probs, num_drafts, 1)
        if self.q.max() == 1.0:
            raise mdsd.InvalidDistributionError("draft_probs is certain")


class HubPairDraft(DraftDistribution):
    """The most likely token and another one, either of them first with the same chance."""

    name = "hub_pair"
    distinct = True
    certain_first = False
    num_drafts = 2

    def __init__(self, draft_probs, num_drafts):
        q = np.array(draft_probs, dtype=np.float64)
        if np.count_nonzero(q) < 2:
            raise mdsd.InvalidDistributionError("draft_probs has 1 token; a pair needs 2")
        self.hub, self.vocab_size = int(q.argmax()), len(q)
        q[self.hub] = 0.0
        self.q = q / q.sum()

    @classmethod
    def from_probs_at_most(cls, draft_probs, num_drafts, **options):
        if num_drafts < 2:
            return mdsd.TopKDraft(draft_probs, num_drafts)
        return cls(draft_probs, num_drafts)

    @classmethod
    def refusal(cls, num_drafts, **options):
        return None if num_drafts == 2 else "a pair has 2 drafts"

    @classmethod
    def num_certain(cls, num_drafts, **options):
        return 1

    def hit_probs(self, order):
        met = np.logical_or.accumulate(np.asarray(order) == self.hub)
        inside = np.minimum(np.cumsum(self.q[order]), 1.0)
        return np.concatenate([[0.0], np.where(met, 1.0, inside)])

    def sample(self, rng, size=None):
        rng = np.random.default_rng(rng)
        count = 1 if size is None else size
        pairs = np.stack([np.full(count, self.hub), rng.choice(len(self.q), count, p=self.q)], 1)
        swapped = rng.random(count) < 0.5
        pairs[swapped] = pairs[swapped, ::-1]
        return pairs[0] if size is None else pairs

    def prob(self, draft_token_ids):
        first, second = np.moveaxis(np.asarray(draft_token_ids), -1, 0)
        last = np.where(first == self.hub, self.q[second], 0.0)
        return 0.5 * (last + np.where(second == self.hub, self.q[first], 0.0))

    def tuples(self):
        for token in np.flatnonzero(self.q):
            yield (self.hub, int(token)), 0.5 * self.q[token]
            yield (int(token), self.hub), 0.5 * self.q[token]


class LeaderDraft(SharpenedDraft):
    """The most likely token, then independent draws, which may repeat it."""

    name = "leader"
    options = ()

    def __init__(self, draft_probs, num_drafts):
        super().__init__(draft_probs, num_drafts, 1)
        self.first = np.eye(self.vocab_size)[self.q.argmax()]

    @classmethod
    def num_certain(cls, num_drafts, **options):
        return 1

    def next_probs(self, drafted):
        return self.q if len(drafted) else self.first

    def hit_probs(self, order):
        inside = np.concatenate([[0.0], np.cumsum(self.q[order])])
        misses = (1.0 - np.minimum(inside, 1.0)) ** (self.num_drafts - 1)
        misses[1:][np.logical_or.accumulate(self.first[order] > 0.0)] = 0.0
        misses[-1] = 0.0
        return 1.0 - misses

    def sample(self, rng, size=None):
        drawn = super().sample(rng, size)
        drawn[..., 0] = self.first.argmax()
        return drawn

    def prob(self, draft_token_ids):
        ids = np.asarray(draft_token_ids)
        return self.first[ids[..., 0]] * self.q[ids[..., 1:]].prod(axis=-1)

    def tuples(self):
        for ids in product(range(self.vocab_size), repeat=self.num_drafts):
            chance = float(self.prob(ids))
            if chance > 0.0:
                yield ids, chance


class EachSharpenedDraft(DraftDistribution):
    """Independent draws, each from the square of its own model's distribution, renormalised."""

    name = "each_sharpened"
    one_model_each = True
    successive = True

    def __init__(self, draft_probs, num_drafts):
        q = np.asarray(draft_probs, dtype=np.float64) ** 2
        self.q = q / q.sum(axis=1, keepdims=True)
        self.num_drafts, self.vocab_size = self.q.shape

    def hit_probs(self, order):
        inside = np.cumsum(self.q[:, order], axis=1)
        hits = 1.0 - (1.0 - np.minimum(inside, 1.0)).prod(axis=0)
        hits[-1] = 1.0
        return np.concatenate([[0.0], hits])

    def sample(self, rng, size=None):
        rng = np.random.default_rng(rng)
        count = 1 if size is None else size
        drawn = np.stack([rng.choice(self.vocab_size, count, p=q) for q in self.q], axis=1)
        return drawn[0] if size is None else drawn

    def prob(self, draft_token_ids):
        return self.q[np.arange(self.num_drafts), np.asarray(draft_token_ids)].prod(axis=-1)

    def next_probs(self, drafted):
        return self.q[len(drafted)]

    def tuples(self):
        for ids in product(range(self.vocab_size), repeat=self.num_drafts):
            chance = float(self.prob(ids))
            if chance > 0.0:
                yield ids, chance
