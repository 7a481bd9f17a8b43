"""Models of GGUF files against llama-cpp-python's own evaluation of the same texts."""

from __future__ import annotations

import ctypes
import gc
import pickle
import subprocess
import sys
import textwrap
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mdsd.decoding import MappedModel, NGramModel, generate
from mdsd.decoding.llama_cpp import GGUFModel
from mdsd.decoding.llama_cpp._library import errors_kept
from mdsd.decoding.vocabulary import over_vocabulary
from mdsd.errors import InvalidArgumentError, InvalidTokenError, MdsdError, UnsupportedError

llama_cpp = pytest.importorskip("llama_cpp")
pytest.importorskip("gguf")

TOLERANCE = 1e-4
"""Of float32 weights: products of one token and of several are summed in another order."""

TEXT = "The value of a dictionary is a mapping of keys to values, and each key may occur once. "


def assert_same(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


def a_tree(rng, prompt, vocab_size, size):
    """Draw a tree: the prompt, and nodes behind any that are there."""
    paths = [prompt]
    for _ in range(size):
        paths.append([*paths[rng.integers(len(paths))], int(rng.integers(vocab_size))])
    return paths


def test_a_tree_is_one_call_and_has_the_logits_of_plain_evaluation(files, load, plain, monkeypatch):
    model, read = load(files / "target.gguf"), plain(files / "target.gguf")
    prompt = model.tokenizer.encode("w1 w2 w3")
    tree = a_tree(np.random.default_rng(0), prompt, model.vocab_size, 60)
    calls = []
    decode = llama_cpp.llama_decode
    monkeypatch.setattr(
        llama_cpp, "llama_decode", lambda *given: calls.append(given[1].n_tokens) or decode(*given)
    )
    found = model.logits(tree)
    assert calls == [len(prompt) + len({tuple(path) for path in tree}) - 1]
    assert found.dtype == np.float32
    monkeypatch.undo()
    assert_same(found, [read(path)[-1] for path in tree])


@pytest.mark.parametrize("seed", range(6))
def test_caches_are_right_after_rejections(files, load, plain, seed):
    """Steps of a decoder at random, each recomputed from nothing by another reader."""
    model, read = load(files / "target.gguf"), plain(files / "target.gguf")
    rng = np.random.default_rng(seed)
    text = rng.integers(model.vocab_size, size=5).tolist()
    for _ in range(12):
        tree = a_tree(rng, text, model.vocab_size, int(rng.integers(1, 12)))
        order = rng.permutation(len(tree))
        found = model.logits([tree[k] for k in order])
        assert_same(found, [read(tree[k])[-1] for k in order])
        path = tree[rng.integers(len(tree))]
        # Accepted so far, and one token more; now and then something else.
        text = [*path, 7] if rng.random() < 0.8 else path[: int(rng.integers(1, len(path) + 1))]


def test_a_wrong_cache_is_noticed(files, load, plain):
    model, read = load(files / "target.gguf"), plain(files / "target.gguf")
    model.logits([[1, 2, 3], [1, 2, 4]])
    model._tree.token_ids[:] = [9, 2]  # as if another text had been read
    with pytest.raises(AssertionError):
        assert_same(model.logits([[9, 2, 5]]), [read([9, 2, 5])[-1]])


def test_long_texts_are_read_in_pieces_and_the_cache_grows(files, load, plain):
    model, read = load(files / "target.gguf"), plain(files / "target.gguf")
    text = np.random.default_rng(1).integers(model.vocab_size, size=1500).tolist()
    expected = read(text)
    tree = [text[:1400], [*text[:1400], 3], text[:1401]]
    found = model.logits(tree)
    assert_same(found[[0, 2]], expected[[1399, 1400]])
    assert_same(found[1], read(tree[1])[-1])
    assert_same(model.logits([text]), expected[-1:])
    many = model.logits([text[:k] for k in range(1, 601)])  # more than one call takes
    assert_same(many, expected[:600])
    model.forget()
    assert_same(model.logits([text[:2]]), expected[1:2])
    assert model._context.num_cells < 1024


def test_more_leaves_than_sequences(files, load):
    model = load(files / "target.gguf")
    tree = [[5, 6], *([5, 6, token] for token in range(model.vocab_size))]
    found = model.logits(tree)
    for row in (0, 1, 130, model.vocab_size):
        assert_same(model.logits([tree[row]]), found[row : row + 1])
    # Level after level, until the sequences run out.
    level = [[5, 6, token] for token in range(50)]
    for token in range(6):
        level = [[*path, token] for path in level]
        found = model.logits(level)
    model.forget()
    assert_same(model.logits(level[17:18]), found[17:18])


def test_more_leaves_than_sequences_behind_what_has_been_read(files, load, plain):
    model, read = load(files / "target.gguf"), plain(files / "target.gguf")
    level = [[5, 6, token] for token in range(16)]
    assert_same(model.logits(level)[3], read(level[3])[-1])
    below = [[*path, token, token + 1] for path in level for token in range(9)]
    found = model.logits(below)
    for row in (0, 71, 72, 143):
        assert_same(found[row], read(below[row])[-1])
    assert_same(model.logits([level[7]])[0], read(level[7])[-1])


def test_the_same_prefix_twice(files, load):
    model = load(files / "target.gguf")
    found = model.logits([[5, 6], [5, 6], [5]])
    assert (found[0] == found[1]).all()
    assert_same(model.logits([[5, 6]]), found[:1])
    assert_same(model.logits([[5, 6], [5]]), found[1:])
    assert model.logits([]).shape == (0, model.vocab_size)


def greedy(read, text, count):
    """Continue a text as llama.cpp does alone, a token at a time."""
    llama = read.llama
    llama.reset()
    llama.eval(text)
    found = []
    for _ in range(count):
        found.append(int(llama._scores[llama.n_tokens - 1].argmax()))
        llama.eval(found[-1:])
    return found


@pytest.mark.parametrize("draft", ["draft", "other"])
def test_greedy_output_is_the_targets(files, load, plain, draft):
    target = load(files / "target.gguf")
    prompt = target.tokenizer.encode("w1 w2")
    expected = greedy(plain(files / "target.gguf"), prompt, 24)
    options = {"max_new_tokens": 24, "temperature": 0.0, "tree": [3, 2, 1], "rng": 0}
    found = generate(target, load(files / f"{draft}.gguf"), prompt, **options)
    assert found.token_ids.tolist() == expected


def test_logits_of_smollm2_depend_on_the_text_alone(smollm2, load, plain):
    """To the last bit: at once, in trees, one by one, after rejections."""
    model, read = load(smollm2), plain(smollm2)
    text = model.tokenizer.encode(TEXT * 4)
    assert len(text) > 64
    base = read(text)
    assert (model.logits([text[: k + 1] for k in range(len(text))]) == base).all()
    tree = a_tree(np.random.default_rng(0), text, model.vocab_size, 8)
    found = model.logits(tree)
    for path, row in list(zip(tree, found, strict=True))[::3]:
        assert (row == read(path)[-1]).all()
    for path, row in zip(tree, found, strict=True):
        assert (row == model.logits([path])[0]).all()


def test_several_threads_sum_as_one_does(files, load, plain):
    """Of long texts the attention of one token would be split among them."""
    model, read = load(files / "target.gguf", num_threads=2), plain(files / "target.gguf")
    text = np.random.default_rng(2).integers(model.vocab_size, size=640).tolist()
    expected = read(text)
    model.logits([text[:600]])
    for stop in (601, 602, 610, 640):
        assert_same(model.logits([text[:stop]]), expected[stop - 1 : stop])


def test_greedy_output_of_smollm2_is_llama_cpps(smollm2, load, plain):
    target = load(smollm2)
    prompt = target.tokenizer.encode("The value of")
    expected = greedy(plain(smollm2), prompt, 24)
    draft_model = NGramModel([*prompt, *expected[::-1], *expected], target.vocab_size, 3)
    found = generate(
        target, draft_model, prompt, max_new_tokens=24, temperature=0.0, tree=[2, 2, 1], rng=0
    )
    assert found.token_ids.tolist() == expected
    assert found.target_calls < 24


def test_texts_and_tokens(smollm2, files, load):
    for path in (smollm2, files / "target.gguf"):
        tokenizer = load(path).tokenizer
        for text in ("w1 w2", "a b  c\n", "é ☃ w11"):
            assert tokenizer.decode(tokenizer.encode(text)) == text
    tokenizer = load(smollm2).tokenizer
    ids = tokenizer.encode("Hello<|im_end|>")
    assert (ids[-1], tokenizer.decode(ids)) == (2, "Hello")
    assert 2 in tokenizer.eos_token_ids
    vocabulary = tokenizer.get_vocab()
    assert len(vocabulary) == tokenizer.vocab_size == 49152
    assert vocabulary["<|im_end|>"] == 2
    with pytest.raises(InvalidArgumentError, match="Unicode"):
        tokenizer.encode("\ud800")
    with pytest.raises(InvalidArgumentError, match="text is bytes"):
        tokenizer.encode(b"Hello")


@pytest.mark.parametrize(
    ("token_ids", "words"),
    [
        ([1, -1], "token_ids: id -1 at position 1"),
        ([10**6], "token_ids: id 1000000 at position 0"),
        ([1.0], "token_ids holds float64"),
        (["a"], "token_ids holds str"),
        (5, r"token_ids has shape \(\)"),
    ],
)
def test_tokens_that_are_refused(files, load, token_ids, words):
    tokenizer = load(files / "short.gguf").tokenizer
    with pytest.raises(InvalidTokenError, match=words):
        tokenizer.decode(token_ids)
    assert tokenizer.decode(np.array(tokenizer.encode("w1"))) == "w1"
    assert tokenizer.decode([]) == ""


def test_draft_models_are_mapped_by_piece(files, smollm2, load):
    target, other = load(files / "target.gguf"), load(files / "other.gguf")
    pieces = other.tokenizer.get_pieces()
    known = target.tokenizer.get_pieces()
    assert pieces[b" w11", 0, 0] != known[b" w11", 0, 0]
    same = load(files / "draft.gguf")
    assert over_vocabulary(same, same.tokenizer, target.tokenizer, target.vocab_size) is same
    mapped = over_vocabulary(other, other.tokenizer, target.tokenizer, target.vocab_size)
    assert isinstance(mapped, MappedModel)
    ids = mapped._target_token_ids
    assert ids[pieces[b" w11", 0, 0]] == known[b" w11", 0, 0]
    assert ids[pieces[b" x1", 0, 0]] == -1
    # Byte tokens of one kind of tokenizer are characters of another.
    large = load(smollm2).tokenizer.get_pieces()
    assert large[b"\n", 0, 0] == 198
    assert known[b"\n", 0, 0] == 3 + 10
    assert large[b"a", 0, 0] == load(smollm2).tokenizer.encode("a")[0]


@pytest.mark.parametrize(
    ("file", "error", "words"),
    [
        ("nothere", InvalidArgumentError, "No such file"),
        ("text", InvalidArgumentError, "is no GGUF file"),
        ("empty", InvalidArgumentError, "is empty"),
        ("cut", InvalidArgumentError, "not within the file bounds"),
        ("beginning", InvalidArgumentError, "cannot be loaded"),
        ("encoder", UnsupportedError, "both directions"),
        ("embeddings", UnsupportedError, "embeddings of texts"),
    ],
)
def test_files_that_are_refused(files, capfd, file, error, words):
    with pytest.raises(error, match=words) as raised:
        GGUFModel(files / f"{file}.gguf")
    assert f"{file}.gguf: " in str(raised.value)
    assert "\n" not in str(raised.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("prefixes", "words"),
    [
        ([[1], []], r"row 1 has shape \(0,\); expected .* at least 1 token id"),
        ([list(range(13))], "row 0 has 13 tokens; expected at most 12"),
        ([[1], [1, 100_000]], "row 1: id 100000 at position 1"),
        ([[-1, 2]], "row 0: id -1 at position 0"),
        ([[1], ["a"]], "row 1 holds str"),
        ([[1, 2.0]], "row 0 holds float64"),
        ([[True]], "row 0 holds bool"),
        ([[[1]]], r"row 0 has shape \(1, 1\)"),
        ([1, 2], r"row 0 has shape \(\)"),
        ([None], "row 0 holds object"),
        (5, "prefixes is 5"),
    ],
)
def test_texts_that_are_refused(files, load, prefixes, words):
    model = load(files / "short.gguf")
    before = model.logits([[1, 2]])
    with pytest.raises(InvalidTokenError, match=words):
        model.logits(prefixes)
    assert_same(model.logits([[1, 2]]), before)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_threads", 0),
        ("num_threads", 1.5),
        ("batch_size", 1),
        ("batch_size", "8"),
        ("num_gpu_layers", -2),
    ],
)
def test_options_that_are_refused(files, name, value):
    with pytest.raises(InvalidArgumentError, match=name):
        GGUFModel(files / "short.gguf", **{name: value})
    with pytest.raises(InvalidArgumentError, match="path is 3"):
        GGUFModel(3)


def test_models_are_closed_and_loaded_again_elsewhere(files):
    with GGUFModel(files / "short.gguf", num_threads=1) as model:
        before = model.logits([[1, 2]])
        copy = pickle.loads(pickle.dumps(model))
    for ask in (
        lambda: model.logits([[1]]),
        lambda: model.logits([]),
        lambda: model.tokenizer.encode("a"),
        model.forget,
        model.describe,
    ):
        with pytest.raises(InvalidArgumentError, match="has been closed"):
            ask()
    model.close()
    assert (copy.logits([[1, 2]]) == before).all()
    assert copy.num_threads == 1
    freed, gone = copy._free, weakref.ref(copy)
    del copy
    gc.collect()
    assert gone() is None
    assert not freed.alive


def test_a_tokenizer_outlives_its_model(files):
    tokenizer = GGUFModel(files / "short.gguf", num_threads=1).tokenizer
    gc.collect()
    assert tokenizer.decode(tokenizer.encode("w1 w2")) == "w1 w2"
    freed = tokenizer._loaded._free
    assert freed.alive
    del tokenizer
    gc.collect()
    assert not freed.alive


def test_a_model_is_closed_when_no_thread_uses_its_tokenizer(files, load, monkeypatch):
    model = load(files / "short.gguf")
    inside, leave = threading.Event(), threading.Event()
    tokenize = llama_cpp.llama_tokenize

    def slow(*given):
        inside.set()
        assert leave.wait(60)
        return tokenize(*given)

    monkeypatch.setattr(llama_cpp, "llama_tokenize", slow)
    with ThreadPoolExecutor(2) as pool:
        found = pool.submit(model.tokenizer.encode, "w1 w2")
        assert inside.wait(60)
        closed = pool.submit(model.close)
        try:
            with pytest.raises(TimeoutError):
                closed.result(0.2)
        finally:
            leave.set()
        assert len(found.result(60)) == 2
        closed.result(60)


def test_memory_is_freed(smollm2):
    def resident():
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * 4096

    if not Path("/proc/self/statm").exists():
        pytest.skip("the system does not say what a process holds")
    sizes = []
    for _ in range(4):
        with GGUFModel(smollm2, num_threads=1) as model:
            model.logits([[1, 2, 3]])
        sizes.append(resident())
    assert sizes[-1] - sizes[0] < 30e6  # of 100 MB each


def test_llama_cpp_is_silent_and_keeps_its_own_log(files, capfd):
    before = llama_cpp.llama_log_callback()
    data = ctypes.c_void_p()
    llama_cpp.llama_log_get(ctypes.byref(before), ctypes.byref(data))
    with GGUFModel(files / "target.gguf") as model:
        model.logits([[1, 2]])
    after = llama_cpp.llama_log_callback()
    llama_cpp.llama_log_get(ctypes.byref(after), ctypes.byref(data))
    assert ctypes.cast(before, ctypes.c_void_p).value == ctypes.cast(after, ctypes.c_void_p).value
    assert capfd.readouterr() == ("", "")


def test_a_cache_that_cannot_grow_is_told_and_shorter_texts_are_read_again(
    files, load, monkeypatch
):
    model = load(files / "target.gguf")
    before = model.logits([[1, 2, 3]])
    with monkeypatch.context() as patched:
        patched.setattr(llama_cpp, "llama_init_from_model", lambda *_: None)
        for text in ([5] * 1500, [1, 2]):
            with pytest.raises(UnsupportedError, match="makes no cache for"):
                model.logits([text])
            model.forget()
    assert_same(model.logits([[1, 2, 3]]), before)
    model.close()
    model.close()


def test_models_are_used_in_several_threads(files):
    """In a process of its own, which would not survive a listener that is gone."""
    code = """
        import sys
        from concurrent.futures import ThreadPoolExecutor
        import numpy as np
        from mdsd.decoding.llama_cpp import GGUFModel

        models = [GGUFModel(path, num_threads=1) for path in sys.argv[1:]]
        texts = [[[5, k], [5, k, 7], [5, k + 1]] for k in range(40)]
        expected = [[model.logits(text) for text in texts] for model in models]

        def ask(number):
            model, text = number % len(models), number // len(models) % len(texts)
            found = models[model].logits(texts[text])
            np.testing.assert_allclose(found, expected[model][text], rtol=0, atol=1e-4)
            with GGUFModel(sys.argv[2], num_threads=1):
                pass

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(ask, range(160)))
        print("all", flush=True)
    """
    paths = [str(files / f"{name}.gguf") for name in ("target", "draft")]
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *paths],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, "all\n", "")


def test_llama_cpp_is_listened_to_in_one_thread_at_a_time(files):
    inside, leave = threading.Event(), threading.Event()

    def listen():
        with errors_kept(llama_cpp) as errors:
            inside.set()
            assert leave.wait(60)
            return errors

    def fail():
        with pytest.raises(InvalidArgumentError, match="not within the file bounds"):
            GGUFModel(files / "cut.gguf")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(listen)
        assert inside.wait(60)
        second = pool.submit(fail)
        with pytest.raises(TimeoutError):
            second.result(0.2)
        leave.set()
        assert first.result(60) == []  # what the other was told is none of its errors
        second.result(60)


def test_an_interrupted_call_leaves_nothing_wrong(files, load, monkeypatch):
    model = load(files / "target.gguf")
    before = model.logits([[1, 2, 3]])

    def fail(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(llama_cpp, "llama_get_logits", fail)
        with pytest.raises(KeyboardInterrupt):
            model.logits([[1, 2, 3, 4], [1, 2, 3, 5]])
    assert_same(model.logits([[1, 2, 3]]), before)
    assert issubclass(UnsupportedError, MdsdError)
