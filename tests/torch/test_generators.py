"""`torch.Generator` wherever a source of randomness is taken."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import mdsd
from mdsd import analysis, decoding, testing
from mdsd.decoding import layouts
from mdsd.errors import InvalidArgumentError

from ..mdsd.decoding.layouts.samples import LAYOUTS, chains, eagle_of, flattened, trees

torch = pytest.importorskip("torch")

P, Q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
CHAIN = [[0.7, 0.3], [0.4, 0.6]]
DRAFT = mdsd.WithReplacement(Q, 2)
PLAN = mdsd.get_verifier("rrs").plan(P, DRAFT)
TABLE = decoding.TableModel([P, Q, P])
ROWS = torch.tensor([P] * 40), torch.tensor([Q] * 40), torch.tensor([[1, 2]] * 40)


def layout(name, rng):
    """Verify tensors in the arrays of an engine."""
    chain = chains(20, 3, 5)
    tree = trees(20, 5, "with_replacement")
    function, given = {
        "flashinfer": (layouts.flashinfer_chain, chain),
        "vllm": (layouts.vllm_flattened, flattened(chain, [3] * 20, np.arange(20) % 5)),
        "sglang": (layouts.sglang_tree, tree),
        "eagle": (layouts.eagle_tree, eagle_of(tree)),
    }[name]
    tensors = {
        key: value if isinstance(value, str) else torch.from_numpy(np.array(value))
        for key, value in given.items()
    }
    if name != "eagle":
        return next(iter(vars(function(**tensors, rng=rng)).values()))
    return [vars(function(**tensors, rng=rng)) for _ in range(10)]


CALLS = {
    "sample": lambda rng: DRAFT.sample(rng, 40),
    "sample explicit": lambda rng: mdsd.ExplicitDraft(
        [[0, 1], [2, 0]], probs=[0.5, 0.5], vocab_size=3
    ).sample(rng, 40),
    "verify": lambda rng: [PLAN.verify([1, 2], rng).token_id for _ in range(40)],
    "verify_many": lambda rng: PLAN.verify_many([[1, 2]] * 40, rng).token_id,
    "verify_batch": lambda rng: (
        mdsd.verify_batch(
            *(each.numpy() for each in ROWS), draft="with_replacement", verifier="rrs", rng=rng
        ).token_ids
    ),
    "verify_batch of tensors": lambda rng: (
        mdsd.verify_batch(*ROWS, draft="with_replacement", verifier="rrs", rng=rng).token_ids
    ),
    "generate": lambda rng: (
        decoding.generate(TABLE, TABLE, [0], tree=[2, 1], max_new_tokens=40, rng=rng).token_ids
    ),
    "simulate_rejections": lambda rng: (
        analysis.simulate_rejections(CHAIN, [[0.5, 0.5]] * 2, 30, [0.5, 0.5], runs=4, rng=rng).mean
    ),
    "simulate_batch_rejections": lambda rng: (
        analysis.simulate_batch_rejections(
            CHAIN, [[0.5, 0.5]] * 2, 30, [0.5, 0.5], batch_size=2, runs=40, rng=rng
        ).mean
    ),
    "simulate_pareto_front": lambda rng: (
        analysis.simulate_pareto_front(P, Q, [0.1], runs=999, rng=rng).rejections
    ),
    "simulate_chain_pareto_front": lambda rng: (
        analysis.simulate_chain_pareto_front(
            CHAIN, [[0.5, 0.5]] * 2, 9, [0.5, 0.5], [0.1], runs=99, rng=rng
        ).rejections
    ),
    **{name: partial(layout, name) for name in LAYOUTS},
    "random_probs": lambda rng: testing.random_probs(rng, 40),
    "drafts_of": lambda rng: [
        draft.sample(0, 9) for draft in testing.drafts_of([np.array(Q)] * 2, 2, rng)
    ],
}


def listed(found):
    return str(found)


@pytest.mark.parametrize("name", CALLS)
def test_a_generator_of_torch_is_a_source_of_randomness(name):
    call = CALLS[name]
    source, same = (torch.Generator().manual_seed(3) for _ in range(2))
    first = listed(call(source))
    assert first == listed(call(same))
    assert first != listed(call(torch.Generator().manual_seed(4)))
    assert first != listed(call(source))  # it has moved on


def test_the_law_is_right():
    drafts = DRAFT.sample(torch.Generator().manual_seed(0), 20_000)
    counts = np.bincount(drafts.ravel(), minlength=3)
    assert testing.chi_square_p_value(counts, np.array(Q)) > 1e-6


@pytest.mark.parametrize("wrong", [torch.tensor(3), torch.Generator, torch.device("cpu")], ids=str)
def test_other_things_of_torch_are_refused(wrong):
    with pytest.raises(InvalidArgumentError, match=r"rng is .*torch\.Generator"):
        DRAFT.sample(wrong)
