"""Cases about decoders: laws of whole outputs, stops, seeds, and filters on both sides."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import mdsd
from mdsd.decoding import TableModel, generate
from mdsd.decoding.decoder import make_decoder
from mdsd.decoding.enumeration import EnumeratedChoices, branches
from mdsd.decoding.rows import Row
from mdsd.testing import accepted_law, sequence_law

from ..verifiers import supporting
from .reading import CASES, as_list, assert_law, assert_names, covers

DRAFTS = {1: ("with_replacement", "without_replacement", "greedy", "top_k")}
DRAFTS[2] = (*DRAFTS[1], "spechub")


class SameRow:
    """The same logits after every prefix."""

    def __init__(self, logits):
        self.row = np.asarray(logits)
        self.vocab_size = len(self.row)

    def logits(self, prefixes):
        return np.tile(self.row, (len(prefixes), 1))


def log(probs):
    with np.errstate(divide="ignore"):
        return np.log(np.array(probs))


def tables(case):
    return TableModel(case.input["target_table"]), TableModel(case.input["draft_table"])


def rows(case, draft="draft_probs"):
    return SameRow(log(case.input["target_probs"])), SameRow(log(case.input[draft]))


def verifiers(draft, num_drafts):
    from mdsd.drafts import read_kind

    return supporting(read_kind(draft).example(num_drafts))


PAIRS = [
    (n, draft, name)
    for n, drafts in DRAFTS.items()
    for draft in drafts
    for name in verifiers(draft, n)
]
every_pair = pytest.mark.parametrize(
    ("num_drafts", "draft", "verifier"), PAIRS, ids=lambda part: str(part)
)


def expected_law(case):
    return {
        tuple(map(int, key.split(","))): prob for key, prob in case.expected["sequence_law"].items()
    }


def assert_sequence_law(law, expected, tolerance):
    assert law == pytest.approx(expected, rel=0, abs=tolerance)


def token_law(*args, vocab_size, **options):
    """Law of the first token."""
    law = sequence_law(*args, length=1, **options)
    return [law.get((token,), 0.0) for token in range(vocab_size)]


def first_step(*args, **options):
    """Probability that the first step accepts at least d drafted tokens, for every d."""
    accepted = accepted_law(*args, **options)[::-1].cumsum()[::-1]
    assert accepted[0] == pytest.approx(1.0, abs=1e-12)
    return accepted[1:]


def drafted_tokens(decoder, prompt, length):
    """Tokens that a step may draft."""
    drawn = branches(lambda choices: decoder.draw([Row(prompt, length, choices)]))
    return {path[-1] for _, (drafting,) in drawn for path in drafting.paths[1:]}


# --- laws of outputs -----------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(4))
@covers("decoder-sequence-law")
def test_sequence_law(case, number):
    settings = case.input["configurations"][number]
    law = sequence_law(
        *tables(case),
        case.input["prompt_ids"],
        case.input["max_new_tokens"],
        temperature=case.input["temperature"],
        **settings,
    )
    assert_sequence_law(law, expected_law(case), case.tolerance)


@covers("decoder-sequence-law")
def test_accepted_by_depth(case):
    settings = case.input["configurations"][0]
    assert (settings["num_drafts"], settings["depth"]) == (1, 2)
    assert case.input["max_new_tokens"] >= settings["depth"]
    found = first_step(*tables(case), case.input["prompt_ids"], **settings)
    expected = case.expected["expected_accepted_by_depth_single_chain"]
    assert found == pytest.approx(expected, abs=case.tolerance)


@pytest.mark.parametrize(
    ("draft", "verifier"), [(draft, name) for n, draft, name in PAIRS if n == 1], ids=str
)
@covers("decoder-recover-from-own-row")
def test_recovers_from_its_own_row(case, draft, verifier):
    result = generate(
        *tables(case),
        case.input["prompt_ids"],
        draft=draft,
        verifier=verifier,
        num_drafts=case.input["num_drafts"],
        depth=case.input["depth"],
        temperature=case.input["temperature"],
        max_new_tokens=case.input["max_new_tokens"],
        rng=0,
    )
    assert result.token_ids.tolist() == case.expected["token_ids"]


@covers("decoder-bonus-token-law")
def test_bonus_token(case):
    settings = {name: case.input[name] for name in ("depth", "num_drafts", "verifier")}
    length = case.input["max_new_tokens"]
    law = sequence_law(*tables(case), case.input["prompt_ids"], length, **settings)
    assert_sequence_law(law, expected_law(case), case.tolerance)
    result = generate(
        *tables(case), case.input["prompt_ids"], max_new_tokens=length, rng=0, **settings
    )
    assert result.target_calls == case.expected["target_calls"]
    assert len(result.token_ids) == length


@covers("decoder-eos-in-the-middle")
def test_end_token_in_the_middle(case):
    following = case.input["target_next"]
    table = np.eye(case.input["vocab_size"])[[following[str(k)] for k in range(len(following))]]
    model = TableModel(table)
    for length in case.input["max_new_tokens"]:
        result = generate(
            model,
            model,
            case.input["prompt_ids"],
            num_drafts=case.input["num_drafts"],
            depth=case.input["depth"],
            eos_token_id=case.input["eos_token_id"],
            max_new_tokens=length,
        )
        emitted = case.expected["emitted"][str(length)]
        assert result.token_ids.tolist() == case.expected["token_ids"][str(length)]
        assert len(result.token_ids) == emitted
        assert result.target_calls == 1
        assert result.tokens_per_target_call == emitted
        # Each emitted token was drafted; the tail behind the end token counts for nothing.
        depth = min(length, case.input["depth"])
        expected = [float(d < emitted) for d in range(depth)]
        assert result.acceptance_by_depth.tolist() == expected


# --- filters and processors ----------------------------------------------------------------------


@every_pair
@covers("decoder-same-filters-on-both-sides")
def test_same_filters_on_both_sides(case, num_drafts, draft, verifier):
    for seed in case.input["seeds"]:
        result = generate(
            *rows(case),
            case.input["prompt_ids"],
            draft=draft,
            verifier=verifier,
            num_drafts=num_drafts,
            depth=case.input["depth"],
            temperature=case.input["temperature"],
            top_k=case.input["top_k"],
            max_new_tokens=case.input["max_new_tokens"],
            rng=seed,
        )
        assert result.token_ids.tolist() == case.expected["token_ids"]
        assert (result.acceptance_by_depth == case.expected["acceptance_rate"]).all()


@every_pair
@covers("decoder-processors-on-every-row")
def test_processors_on_every_row(case, num_drafts, draft, verifier):
    bias = {int(token): float(value) for token, value in case.input["logit_bias"].items()}

    def processor(prefix, logits):
        changed = logits.copy()
        for token, value in bias.items():
            changed[token] += value
        return changed

    # Two levels of two drafts are too many branches for nothing: the second has one.
    depth = case.input["depth"]
    tree = [num_drafts] + [num_drafts if draft == "spechub" else 1] * (depth - 1)
    law = sequence_law(
        *rows(case),
        case.input["prompt_ids"],
        case.input["max_new_tokens"],
        draft=draft,
        verifier=verifier,
        tree=tree,
        logits_processor=processor,
    )
    assert_sequence_law(law, expected_law(case), case.tolerance)
    banned = case.expected["never_emitted"]
    assert not {token for tokens in law for token in tokens} & set(banned)


@pytest.mark.parametrize("verifier", CASES["law-top-two-draft-declared-raw"].input["verifiers"])
@covers("law-top-two-draft-declared-raw")
def test_drafts_are_drawn_from_the_law_that_is_declared(case, verifier):
    models = rows(case, "draft_probs_before_filter")
    options = {"draft": "with_replacement", "num_drafts": 1, "depth": 1, "verifier": verifier}
    options["top_k"] = case.input["top_k"]
    law = token_law(*models, [0], vocab_size=4, **options)
    assert_law(law, case.expected["output_law"], case.tolerance)
    (rate,) = first_step(*models, [0], **options)
    assert rate == pytest.approx(case.expected["acceptance_rate"], abs=case.tolerance)


class RawDeclared(mdsd.RRSVerifier):
    """Told that the drafts were drawn from the unfiltered law."""

    def __init__(self, raw):
        super().__init__()
        self.raw = raw

    def _plan(self, target_probs, draft):
        return super()._plan(target_probs, mdsd.WithReplacement(self.raw, draft.num_drafts))


@covers("law-top-two-draft-declared-raw")
def test_the_raw_law_declared_gives_the_wrong_output(case):
    raw = case.input["draft_probs_before_filter"]
    law = token_law(
        *rows(case, "draft_probs_before_filter"),
        [0],
        vocab_size=4,
        draft="with_replacement",
        num_drafts=1,
        depth=1,
        verifier=RawDeclared(raw),
        top_k=case.input["top_k"],
    )
    assert_law(law, case.expected["wrong_output_law"], case.tolerance)


@pytest.mark.parametrize("verifier", CASES["law-argmax-draft-declared-softmax"].input["verifiers"])
@covers("law-argmax-draft-declared-softmax")
def test_most_likely_draft_is_declared_as_such(case, verifier):
    options = {"draft": "top_k", "num_drafts": 1, "depth": 1, "verifier": verifier}
    law = token_law(*rows(case), [0], vocab_size=3, **options)
    assert_law(law, case.expected["output_law"], case.tolerance)
    (rate,) = first_step(*rows(case), [0], **options)
    assert rate == pytest.approx(case.expected["acceptance_rate"], abs=case.tolerance)


@covers("law-argmax-draft-declared-softmax")
def test_softmax_declared_for_the_most_likely_draft_is_wrong(case, monkeypatch):
    drafted = np.array(case.input["draft_token_ids"])
    monkeypatch.setattr(EnumeratedChoices, "drafts", lambda self, law: drafted)
    options = {"draft": "with_replacement", "num_drafts": 1, "depth": 1, "verifier": "single"}
    law = token_law(*rows(case), [0], vocab_size=3, **options)
    assert_law(law, case.expected["wrong_output_law"], case.tolerance)


@pytest.mark.parametrize("dtype", CASES["law-top-k-ties-keep-exactly-k"].input["dtype"])
@pytest.mark.parametrize("top_k", CASES["law-top-k-ties-keep-exactly-k"].input["top_k"])
@covers("law-top-k-ties-keep-exactly-k")
def test_ties_keep_exactly_k_on_both_sides(case, top_k, dtype):
    model = SameRow(np.array(case.input["logits"], dtype=dtype))
    options = {"temperature": case.input["temperature"], "top_k": top_k}
    kept = set(case.expected["kept"][str(top_k)])
    for draft in ("without_replacement", "greedy"):
        verifier = "greedy" if draft == "greedy" else "rrs"
        settings = {"draft": draft, "verifier": verifier, "tree": [2, 1], **options}
        law = token_law(model, model, [0], vocab_size=5, **settings)
        assert {token for token, prob in enumerate(law) if prob > 0.0} == kept
        if str(top_k) in case.expected["probs"]:
            assert_law(law, case.expected["probs"][str(top_k)], case.tolerance)
        decoder = make_decoder(model, model, **settings)
        assert drafted_tokens(decoder, [0], 3) == kept


# --- seeds ---------------------------------------------------------------------------------------


@every_pair
@covers("rng-greedy-ignores-seed")
def test_temperature_zero_ignores_the_seed(case, num_drafts, draft, verifier):
    for seed in case.input["seeds"]:
        result = generate(
            *tables(case),
            case.input["prompt_ids"],
            draft=draft,
            verifier=verifier,
            num_drafts=num_drafts,
            depth=3,
            temperature=case.input["temperature"],
            max_new_tokens=case.input["max_new_tokens"],
            rng=seed,
        )
        assert result.token_ids.tolist() == case.expected["token_ids"]


def assert_same(first, again):
    assert first.token_ids.tolist() == again.token_ids.tolist()
    assert first.acceptance_by_depth.tolist() == again.acceptance_by_depth.tolist()
    assert (first.target_calls, first.draft_calls) == (again.target_calls, again.draft_calls)


@pytest.mark.parametrize("verifier", ["rrs", "kseq", "optimal"])
@covers("rng-same-seed-same-output")
def test_same_seed_same_output(case, verifier):
    def run(seed, models):
        return generate(
            *models,
            case.input["prompt_ids"],
            draft="with_replacement",
            verifier=verifier,
            tree=[2, 2],
            temperature=case.input["temperature"],
            max_new_tokens=case.input["max_new_tokens"],
            rng=seed,
        )

    seed, models = case.input["seed"], tables(case)
    first = run(seed, models)
    for _ in range(case.input["runs"] - 1):
        assert_same(first, run(seed, pickle.loads(pickle.dumps(models))))
    assert first.token_ids.tolist() != run(seed + 1, models).token_ids.tolist()


@pytest.mark.parametrize("verifier", CASES["rng-same-integer-seed"].input["verifiers"])
@covers("rng-same-integer-seed")
def test_one_seed_for_drafting_and_verifying(case, verifier):
    # A new seed for each run: every run begins with the first numbers of both streams.
    assert case.input["seed_draft"] == case.input["seed_verify"]
    runs = 500
    options = {"draft": "with_replacement", "num_drafts": 1, "depth": 1, "verifier": verifier}
    results = [
        generate(*rows(case), [0], max_new_tokens=1, rng=case.input["seed_draft"] + k, **options)
        for k in range(runs)
    ]
    wider = (case.input["positions"] / runs) ** 0.5
    zeros = np.mean([result.token_ids[0] == 0 for result in results])
    accepted = np.mean([result.acceptance_by_depth[0] for result in results])
    for name, found in (("token_0_rate", zeros), ("acceptance_rate", accepted)):
        tolerance = case.expected[f"{name}_tolerance"] * wider
        assert found == pytest.approx(case.expected[name], abs=tolerance)
        assert abs(found - case.expected[f"wrong_{name}"]) > tolerance


@pytest.mark.parametrize("verifier", CASES["rng-rows-independent"].input["verifier"])
@covers("rng-rows-independent")
def test_runs_do_not_depend_on_each_other(case, verifier):
    num_drafts = 1 if verifier == "single" else 2
    options = {"draft": "with_replacement", "verifier": verifier, "num_drafts": num_drafts}

    def run(row, rng):
        models = [SameRow(log(case.input[name][row])) for name in ("target_probs", "draft_probs")]
        return generate(*models, [0], max_new_tokens=16, depth=2, rng=rng, **options)

    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    forth = [run(row, row % 2) for row in range(4)]
    back = [run(row, row % 2) for row in reversed(range(4))][::-1]
    for first, again in zip(forth, back, strict=True):
        assert_same(first, again)
    assert_same(forth[0], forth[2])
    assert_same(forth[1], forth[3])
    fresh = [run(0, None).token_ids.tolist() + run(1, None).token_ids.tolist() for _ in range(2)]
    assert fresh[0] != fresh[1]
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


# --- bad input -----------------------------------------------------------------------------------


@covers("invalid-length-mismatch")
def test_vocabularies_of_different_length(case):
    for call in as_list(case.input["calls"]):
        target, drafted = call["target_probs"], call["draft_probs"]
        with pytest.raises(mdsd.InvalidDistributionError) as caught:
            generate(SameRow(log(target)), SameRow(log(drafted)), [0], max_new_tokens=2)
        names = case.expected["message_names"][:2]
        assert_names(caught.value, *names, str(len(target)), str(len(drafted)))
