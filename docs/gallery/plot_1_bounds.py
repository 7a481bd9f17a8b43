"""
How much acceptance is possible
===============================

The bound is the largest probability that any lossless verifier accepts one of n drafted tokens. It
depends on how the drafts are drawn from the draft model, before any verifier comes in.
"""

import matplotlib.pyplot as plt

import mdsd

data = mdsd.datasets.load("smollm2")
target = mdsd.probs_from_logits(data.target_table)
drafted = mdsd.probs_from_logits(data.draft_tables["drop2"])

counts = range(1, 9)
figure, axis = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
for draft, marker in {
    "without_replacement": "o",
    "with_replacement": "s",
    "greedy": "^",
    "top_k": "D",
}.items():
    bounds = [
        mdsd.acceptance_bounds(target, drafted, draft=draft, num_drafts=n).mean() for n in counts
    ]
    axis.plot(counts, bounds, marker=marker, label=draft)
axis.set(xlabel="drafted tokens n", ylabel="acceptance bound, mean over positions", ylim=(0.3, 1))
axis.legend()
plt.show()

# %%
# Drawing without replacement never drafts a token twice, and has the largest bound here for every
# n. Always drafting the n most probable tokens (``top_k``) is far below at temperature 1.
