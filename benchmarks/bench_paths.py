"""Verification of whole paths beside level by level: accepted tokens of a step, and their price."""

from dataclasses import replace
from itertools import cycle, pairwise

import numpy as np
import pytest

from mdsd.decoding.block import BlockVerification
from mdsd.decoding.choices import RandomChoices
from mdsd.decoding.decoder import make_decoder
from mdsd.decoding.levels import LevelVerification
from mdsd.decoding.rows import Row
from mdsd.decoding.traversal import TraversalVerification
from mdsd.decoding.verification import step_verification
from mdsd.decoding.weights import child_weight

SEED = 0
VOCAB_SIZE, DEPTH = 40, 5
TREES, REPEATS = 200, 10

FULL_VOCAB_SIZE, FULL_TREE = 49_152, [3, 2, 1]
FULL_TREES, TIMED_TREES = 60, 10
VERIFIERS = ("rrs", "optimal", "traversal", "block")


class RandomModel:
    """Logits of a prefix from a seed: ``scale`` times normal ones, plus noise of the draft."""

    def __init__(self, vocab_size, scale, noise):
        self.vocab_size, self._scale, self._noise = vocab_size, scale, noise

    def logits(self, prefixes):
        rows = []
        for prefix in prefixes:
            rng = np.random.default_rng(prefix)
            row = self._scale * rng.normal(size=self.vocab_size)
            rows.append(row + self._noise * rng.normal(size=self.vocab_size))
        return np.array(rows)


class RememberingChoices(RandomChoices):
    """Plans each node once, however often its tree is verified, and by whom."""

    def __init__(self, rng):
        super().__init__(rng)
        self._plans = {}

    def plan(self, verifier, target_probs, law):
        key = type(verifier), law
        if key not in self._plans:
            self._plans[key] = verifier.plan(target_probs, law)
        return self._plans[key]

    def verify(self, verifier, target_probs, law, draft_token_ids):
        plan = self.plan(verifier, target_probs, law)
        return int(plan.verify(draft_token_ids, self._verify).token_id)


def drafted_trees(count, *, vocab_size, scale, noise, **options):
    """Trees of independent steps; each prompt, and so each step, has laws of its own."""
    models = RandomModel(vocab_size, scale, 0.0), RandomModel(vocab_size, scale, noise)
    decoder = make_decoder(*models, **options)
    rng = np.random.default_rng(SEED)
    for number in range(count):
        prompt = [number % vocab_size, number // vocab_size]
        row = Row(prompt, decoder.shape.depth + 1, RandomChoices(rng))
        yield from decoder.score(decoder.draw([row]))


def mean_and_error(values):
    return f"{np.mean(values):.3f} +- {np.std(values, ddof=1) / np.sqrt(len(values)):.3f}"


def accepted(tree, rules, choices):
    """Tokens that each rule accepts of a tree, averaged over several verifications of it."""
    return [np.mean([len(rule(tree, choices).path) for _ in range(REPEATS)]) for rule in rules]


def expected_along_path(tree, rule, choices):
    """Expected accepted tokens given the path selected: level by level, and as a block.

    A prefix is accepted with the product of the accept probabilities of its tokens, or with its
    weight; only the path is left to chance, which is much of what a count varies by.
    """
    levels, chance = 0.0, 1.0
    path = rule._select_path(tree, 0, choices)
    for before, prefix in pairwise(path):
        token = int(tree.token_ids[prefix.node])
        chance *= child_weight(
            1.0, float(tree.target_probs[before.node][token]), before.plan.selected_of(token)
        )
        levels += chance
    return levels, sum(prefix.weight for prefix in path[1:])


SETTINGS = [("with_replacement", n) for n in (1, 2, 3)]
SETTINGS += [("without_replacement", n) for n in (2, 3)]


@pytest.mark.parametrize(("draft", "num_drafts"), SETTINGS)
def test_block_gains_over_levels(measure, make_pair, draft, num_drafts):
    """Same trees and selections; V = 40, softmax of 2.5 normal logits, noise 1.2, depth 5."""
    settings = {"vocab_size": VOCAB_SIZE, "scale": 2.5, "noise": 1.2}
    options = {"draft": draft, "num_drafts": num_drafts, "depth": DEPTH, "verifier": "naive"}
    block = BlockVerification(tolerance=1e-5)
    rules = [LevelVerification(block.verifier), block, TraversalVerification()]

    def quality(_):
        rng = np.random.default_rng(SEED + 1)
        counts, expected = [], []
        for tree in drafted_trees(TREES, **settings, **options):
            choices = RememberingChoices(rng)
            counts.append(accepted(tree, rules, choices))
            paths = [expected_along_path(tree, block, choices) for _ in range(REPEATS)]
            expected.append(np.mean(paths, axis=0))
        levels, blocks = np.transpose(expected)
        counted = ", ".join(mean_and_error(column) for column in np.transpose(counts))
        return (
            f"expected accepted tokens: levels {mean_and_error(levels)}, block "
            f"{mean_and_error(blocks)}, gain {mean_and_error(blocks - levels)}; counted: {counted} "
            "(traversal)"
        )

    trees = cycle([*drafted_trees(20, **settings, **options)])
    rng = np.random.default_rng(SEED)
    measure(
        lambda: block(afresh(next(trees)), RandomChoices(rng)),
        make_pair(VOCAB_SIZE),
        quality=quality,
    )


def afresh(tree):
    """The same tree with new laws: the last search of one that stays is remembered."""
    laws = tuple(law and type(law)(law.draft_probs, law.num_drafts) for law in tree.laws)
    return replace(tree, laws=laws)


def full_trees(draft, count):
    settings = {"vocab_size": FULL_VOCAB_SIZE, "scale": 3.0, "noise": 1.0}
    return drafted_trees(count, **settings, draft=draft, tree=FULL_TREE, verifier="rrs")


@pytest.fixture(
    scope="module", params=["with_replacement", "without_replacement"], ids="draft={}".format
)
def full(request):
    """Trees to time, and the accepted tokens of others under every verifier."""
    trees = [*full_trees(request.param, TIMED_TREES)]
    for tree in trees:
        for node in range(len(tree.token_ids)):
            tree.target_probs[node]  # filtered here and not while verifications are timed
    rules, rng = [step_verification(name) for name in VERIFIERS], np.random.default_rng(SEED)
    counts = [
        accepted(tree, rules, RememberingChoices(rng))
        for tree in full_trees(request.param, FULL_TREES)
    ]
    return trees, dict(zip(VERIFIERS, np.transpose(counts), strict=True))


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_full_vocabulary(measure, make_pair, full, verifier):
    """One step on the tree [3, 2, 1] at V = 49,152; the target's laws are there."""
    trees, counts = full
    rule, rng, turns = step_verification(verifier), np.random.default_rng(SEED), cycle(trees)
    measure(
        lambda: rule(afresh(next(turns)), RandomChoices(rng)),
        make_pair(FULL_VOCAB_SIZE),
        quality=lambda _: f"accepted tokens {mean_and_error(counts[verifier])}",
    )


def test_every_residual_in_full(measure, make_pair, full):
    """Block verification without tries, for comparison; its law is the same."""
    trees, counts = full
    rule, rng, turns = BlockVerification(), np.random.default_rng(SEED), cycle(trees)
    measure(
        lambda: rule(afresh(next(turns)), RandomChoices(rng)),
        make_pair(FULL_VOCAB_SIZE),
        quality=lambda _: f"accepted tokens {mean_and_error(counts['block'])}",
    )
