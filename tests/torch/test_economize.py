"""The verifiers as `economize` finds and uses them; skipped where that package is missing."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

import mdsd
from mdsd.decoding import economize as adapter
from mdsd.testing import chi_square_p_value

torch = pytest.importorskip("torch")
economize = pytest.importorskip("economize")

from economize.decoding import Draft, GreedySelector, TopPSampler, verifiers  # noqa: E402
from economize.registry import Registry  # noqa: E402

GROUP = "economize.verifiers"
PROJECT = Path(__file__).parents[2] / "pyproject.toml"
TARGET = [
    [0.5, 0.3, 0.15, 0.05],
    [0.1, 0.2, 0.3, 0.4],
    [0.25, 0.5, 0.05, 0.2],
    [0.4, 0.1, 0.1, 0.4],
]
DRAFTED = [
    [0.2, 0.5, 0.2, 0.1],
    [0.3, 0.3, 0.2, 0.2],
    [0.1, 0.4, 0.2, 0.3],
    [0.25, 0.25, 0.25, 0.25],
]
ROWS = 4_000
FALSE_ALARM = 1e-6


def make(name, **options):
    config = economize.DecodeConfig(verifier=name, verifier_options=options)
    return getattr(adapter, adapter.NAMES[name])(config)


def logits(table):
    return torch.log(torch.tensor(table, dtype=torch.float64))


def p_value(tokens, law):
    """Chi-square test of tokens, one number each, against their law."""
    return chi_square_p_value(np.bincount(tokens, minlength=len(law)), law)


def pair_law(first=0):
    """Law of the first two tokens, as one number each."""
    target = np.array(TARGET)
    return (target[first][:, None] * target).ravel()


# --- registration --------------------------------------------------------------------------------


def entry_points():
    declared = tomllib.loads(PROJECT.read_text())["project"]["entry-points"][GROUP]
    return [EntryPoint(name, value, GROUP) for name, value in declared.items()]


def test_entry_points_are_the_names_of_the_module():
    found = {entry.name: entry.value for entry in entry_points()}
    module = adapter.__name__
    assert found == {name: f"{module}:{kind}" for name, kind in adapter.NAMES.items()}


@pytest.mark.parametrize("entry", entry_points(), ids=lambda entry: entry.name)
def test_entry_point_is_a_verifier(entry):
    kind = entry.load()
    assert issubclass(kind, economize.Verifier)
    assert kind(economize.DecodeConfig(verifier=entry.name)).supports_trees
    assert entry.load() is kind


def test_registry_finds_them(monkeypatch):
    found = entry_points()
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found)
    registry = Registry("verifier", GROUP)
    assert set(registry.names()) == set(adapter.NAMES)
    assert not registry.unavailable


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="GreedyVerifier"):
        _ = adapter.GreedyVerifier


# --- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"draft": "replacement"}, "with_replacement"),
        ({"draft": "greedy"}, "without_replacement"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"depth": 3}, "depth"),
    ],
)
def test_bad_options_are_config_errors(options, words):
    with pytest.raises(economize.ConfigError, match=words):
        make("mdsd_optimal", **options)


def test_options_reach_the_verifier():
    assert make("mdsd_optimal", tolerance=1e-3)._verifier.tolerance == 1e-3


# --- chains --------------------------------------------------------------------------------------


def drawn_chains(verifier, selector):
    """Chains of two drafts from the table, drawn by the verifier, after the last token 0."""
    table = logits(DRAFTED)
    first, laws = verifier.draft_many(table[[0] * ROWS], selector)
    second, others = verifier.draft_many(table[first], selector)
    return torch.stack([first, second], 1), torch.stack([laws, others], 1)


def chain_tokens(verifier, selector, tokens, probs):
    last = torch.cat([torch.zeros(len(tokens), 1, dtype=torch.long), tokens], 1)
    draft = Draft(tokens, [2] * len(tokens), probs=probs)
    accepted, following = verifier.verify_batch(
        logits(TARGET)[last], draft, selector, tokens, [1] * len(tokens)
    )
    return accepted, following


def first_two(accepted, following, tokens):
    """The first two tokens as one number, completed by the target where only one is there."""
    rows = np.arange(len(tokens))
    every = np.concatenate([tokens, np.full((len(tokens), 1), -1)], axis=1)
    every[rows, accepted] = following
    draws = np.random.default_rng(5).random(len(tokens))
    sums = np.cumsum(TARGET, axis=1)
    completed = (draws[:, None] >= sums[every[:, 0]]).sum(axis=1)
    second = np.where(accepted == 0, completed, every[:, 1])
    return every[:, 0] * 4 + second


@pytest.mark.parametrize("name", adapter.NAMES)
def test_drawn_chains_have_the_law_of_the_target(name):
    verifier, selector = make(name), TopPSampler(seed=1)
    tokens, probs = drawn_chains(verifier, selector)
    accepted, following = chain_tokens(verifier, selector, tokens, probs)
    pairs = first_two(accepted.numpy(), following.numpy(), tokens.numpy())
    assert p_value(pairs, pair_law()) > FALSE_ALARM
    if name != "mdsd_naive":
        first = np.minimum(TARGET[0], DRAFTED[0]).sum()
        assert abs((accepted > 0).double().mean() - first) < 5 * 0.5 / np.sqrt(ROWS)


def test_chains_with_the_wrong_law_are_noticed():
    """Negative control."""
    verifier, selector = make("mdsd_rrs"), TopPSampler(seed=1)
    tokens, probs = drawn_chains(verifier, selector)
    accepted, following = chain_tokens(verifier, selector, tokens, probs.flip(2) * 0.5 + 0.125)
    pairs = first_two(accepted.numpy(), following.numpy(), tokens.numpy())
    assert p_value(pairs, pair_law()) < FALSE_ALARM


@pytest.mark.parametrize("name", adapter.NAMES)
def test_chosen_chains_have_the_law_of_the_target(name):
    verifier, selector = make(name), TopPSampler(seed=2)
    tokens = torch.tensor([[1, 2]]).expand(ROWS, 2)
    accepted, following = chain_tokens(verifier, selector, tokens, None)
    pairs = first_two(accepted.numpy(), following.numpy(), tokens.numpy())
    assert p_value(pairs, pair_law()) > FALSE_ALARM
    assert abs((accepted > 0).double().mean() - TARGET[0][1]) < 5 * 0.5 / np.sqrt(ROWS)


def test_one_row_with_a_history():
    """The way for selectors whose distribution depends on the history."""

    class Selector:
        greedy = False
        generator = None

        def distribution(self, logits, history):
            return torch.softmax(logits + (history[-1] == 0) * 0.0, -1)

        def __call__(self, logits, history):
            return int(logits.argmax())

    verifier = make("mdsd_optimal")
    sure = torch.log(torch.eye(4, dtype=torch.float64)[[2, 3, 1]])
    seq = torch.tensor([[0, 2, 3, 0]])
    draft = Draft(torch.tensor([[2, 0]]), [2], probs=torch.full((1, 2, 4), 0.25))
    accepted, following = verifier.verify_batch(sure[None], draft, Selector(), seq, [1])
    assert (accepted.tolist(), following.tolist()) == ([1], [3])
    token, law = verifier.draft(sure[0], Selector(), seq[0, :1])
    assert token == 2
    assert law.tolist() == [0.0, 0.0, 1.0, 0.0]
    assert verifier.draft_many(sure, Selector()) is None


def test_no_drafts_at_all():
    verifier, selector = make("mdsd_rrs"), GreedySelector()
    draft = Draft.empty(2, "cpu")
    accepted, following = verifier.verify_batch(
        logits(TARGET)[[0, 1]][:, None],
        draft,
        selector,
        torch.zeros(2, 1, dtype=torch.long),
        [1, 1],
    )
    assert (accepted.tolist(), following.tolist()) == ([0, 0], [0, 3])


def test_rows_of_different_lengths():
    verifier, selector = make("mdsd_rrs"), GreedySelector()
    tokens = torch.tensor([[3, 0], [3, -1], [2, 0]])
    last = torch.tensor([[1, 3, 0]] * 3)
    draft = Draft(tokens, [2, 1, 2])
    accepted, following = verifier.verify_batch(
        logits(TARGET)[last], draft, selector, tokens, [1] * 3
    )
    assert (accepted.tolist(), following.tolist()) == ([2, 1, 0], [0, 0, 3])


# --- trees ---------------------------------------------------------------------------------------

PARENTS = [-1, -1, 0, 0]
"""Two nodes after the last token, and two after the first of them."""


def tree_pairs(verifier, selector, tokens, probs):
    """The first two tokens after the last token 0, as one number, for trees (R, 4)."""
    count = len(tokens)
    last = torch.cat([torch.zeros(count, 1, dtype=torch.long), tokens], 1)
    draft = Draft(tokens, [4] * count, torch.tensor([PARENTS] * count), probs)
    paths, following = verifier.verify_tree(logits(TARGET)[last], draft, selector)
    every = np.full((count, 3), -1)
    accepted = np.array([len(path) for path in paths])
    for b, path in enumerate(paths):
        every[b, : len(path)] = tokens[b, path]
    return first_two(accepted, np.array(following), every[:, :2]), accepted


@pytest.mark.parametrize("name", ["mdsd_naive", "mdsd_rrs", "mdsd_optimal"])
def test_chosen_trees_have_the_law_of_the_target(name):
    verifier, selector = make(name), TopPSampler(seed=3)
    count = 1000 if name == "mdsd_rrs" else ROWS  # one plan for each node there
    tokens = torch.tensor([[1, 3, 2, 0]]).expand(count, 4)
    pairs, accepted = tree_pairs(verifier, selector, tokens, None)
    assert p_value(pairs, pair_law()) > FALSE_ALARM
    rate = TARGET[0][1] + TARGET[0][3]
    assert abs((accepted > 0).mean() - rate) < 5 * 0.5 / np.sqrt(count)
    one_hot = torch.eye(4)[tokens]
    again, _ = tree_pairs(make(name), TopPSampler(seed=3), tokens[:500], one_hot[:500])
    few, _ = tree_pairs(make(name), TopPSampler(seed=3), tokens[:500], None)
    assert (again == few).all()


def drawn_trees(draft, count=ROWS):
    """Trees whose siblings are drawn from the table, with the law of each given those before it."""
    kinds = {
        "with_replacement": mdsd.WithReplacement,
        "without_replacement": mdsd.WithoutReplacement,
    }
    tokens = np.empty((count, 4), dtype=np.int64)
    tokens[:, :2] = kinds[draft](DRAFTED[0], 2).sample(11, size=count)
    for last in range(4):
        rows = tokens[:, 0] == last
        tokens[rows, 2:] = kinds[draft](DRAFTED[last], 2).sample(12 + last, size=rows.sum())
    above = np.stack([np.zeros(count, dtype=np.int64)] * 2 + [tokens[:, 0]] * 2, axis=1)
    probs = np.array(DRAFTED)[above]
    if draft == "without_replacement":
        for older, younger in ((0, 1), (2, 3)):
            probs[np.arange(count), younger, tokens[:, older]] = 0.0
        probs /= probs.sum(axis=-1, keepdims=True)
    return torch.from_numpy(tokens), torch.from_numpy(probs).float()


@pytest.mark.parametrize(
    ("draft", "name"),
    [
        ("with_replacement", "mdsd_rrs"),
        ("with_replacement", "mdsd_kseq"),
        ("with_replacement", "mdsd_naive_tree"),
        ("with_replacement", "mdsd_optimal"),
        ("without_replacement", "mdsd_rrs"),
        ("without_replacement", "mdsd_naive"),
    ],
)
def test_drawn_trees_have_the_law_of_the_target(draft, name):
    verifier, selector = make(name, draft=draft), TopPSampler(seed=4)
    pairs, _ = tree_pairs(verifier, selector, *drawn_trees(draft))
    assert p_value(pairs, pair_law()) > FALSE_ALARM


def test_trees_with_the_wrong_law_are_noticed():
    """Negative control: consistent among siblings, but not what they were drawn from."""
    tokens, probs = drawn_trees("with_replacement")
    verifier = make("mdsd_rrs", draft="with_replacement")
    pairs, _ = tree_pairs(verifier, TopPSampler(seed=4), tokens, probs.flip(2) * 0.5 + 0.125)
    assert p_value(pairs, pair_law()) < FALSE_ALARM


def test_drawn_siblings_need_a_draft_distribution():
    with pytest.raises(economize.ConfigError, match="draft"):
        tree_pairs(make("mdsd_rrs"), TopPSampler(), *drawn_trees("with_replacement", 10))


@pytest.mark.parametrize(
    ("drawn", "said"),
    [
        ("with_replacement", "without_replacement"),
        ("without_replacement", "with_replacement"),
    ],
)
def test_siblings_of_another_draft_distribution_are_refused(drawn, said):
    verifier = make("mdsd_rrs", draft=said)
    with pytest.raises(economize.ConfigError, match=said.replace("_", " ")):
        tree_pairs(verifier, TopPSampler(), *drawn_trees(drawn, 50))


def test_unsupported_trees_are_config_errors():
    tokens = torch.tensor([[1, 3, 2, 0]])
    with pytest.raises(economize.ConfigError, match="kseq"):
        tree_pairs(make("mdsd_kseq"), TopPSampler(), tokens, None)


def test_trees_need_distributions():
    class Selector:
        greedy = True

        def __call__(self, logits, history):
            return 0

    with pytest.raises(economize.ConfigError, match="distributions"):
        tree_pairs(make("mdsd_rrs"), Selector(), torch.tensor([[1, 3, 2, 0]]), None)


# --- its decoder ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=16,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
    )
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")
@pytest.mark.parametrize("technique", ["lookup", "medusa"])
@pytest.mark.parametrize("name", ["mdsd_optimal", "mdsd_rrs"])
def test_decoder_of_economize(model, technique, name, monkeypatch):
    """Chains from the prompt and trees from untrained heads: greedy output is unchanged."""
    if technique == "lookup":
        from economize.techniques.lookup import LookupConfig

        config = LookupConfig()
    else:
        from economize.techniques.medusa import MedusaConfig

        config = MedusaConfig(num_heads=2, tree=((0,), (1,), (0, 0), (0, 1)))
    registry = Registry("verifier", GROUP)
    for known in ("greedy", "rejection"):
        registry.register(known, verifiers.VERIFIERS.get(known))
    registry.register(name, getattr(adapter, adapter.NAMES[name]))
    monkeypatch.setattr("economize.decoding.loop.VERIFIERS", registry)
    prompt = torch.tensor([3, 1, 4, 1, 5, 9, 3, 1])
    wrapped = economize.apply(model, config)
    try:
        found = wrapped.decode(
            prompt, 12, decoding=economize.DecodeConfig(cycle_length=3, verifier=name)
        )
        plain = wrapped.decode(prompt, 12, decoding=economize.DecodeConfig(cycle_length=1))
        sampled = [
            wrapped.decode(
                prompt,
                12,
                decoding=economize.DecodeConfig(cycle_length=3, verifier=name),
                selector=TopPSampler(seed=7),
            ).tokens.tolist()
            for _ in range(2)
        ]
    finally:
        wrapped.detach()
    assert found.tokens.tolist() == plain.tokens.tolist()
    assert sampled[0] == sampled[1]
    assert len(sampled[0]) == 12
