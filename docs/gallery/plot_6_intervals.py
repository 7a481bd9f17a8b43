"""
What a server's log still tells
===============================

Servers return the log-probabilities of the k most probable tokens. The bound then lies in an
interval, here against the true value, which is known because the whole distributions are.
"""

import matplotlib.pyplot as plt
import numpy as np

import mdsd

data = mdsd.datasets.load("smollm2")
target = mdsd.probs_from_logits(data.target_table[:48])
drafted = mdsd.probs_from_logits(data.draft_tables["drop2"][:48])


def top(probs, k):
    best = np.argsort(-probs)[:k]
    return dict(zip(best.tolist(), np.log(probs[best]).tolist()))


sizes = [2, 5, 10, 20, 50, 100, 200]
ends = []
for k in sizes:
    found = [
        mdsd.acceptance_interval(top(p, k), top(q, k), num_drafts=3)
        for p, q in zip(target, drafted)
    ]
    ends.append(np.mean([(each.lower, each.upper) for each in found], axis=0))
lower, upper = np.transpose(ends)

figure, axis = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
axis.fill_between(sizes, lower, upper, alpha=0.3, label="interval, mean of the ends")
truth = mdsd.acceptance_bounds(target, drafted, num_drafts=3).mean()
axis.axhline(truth, color="black", linestyle="--", label="bound")
axis.set(xscale="log", xlabel="tokens in the log, k", ylabel="acceptance bound, mean", ylim=(0, 1))
axis.set_xticks(sizes, sizes)
axis.legend(loc="lower right")
plt.show()

# %%
# ``mdsd interval`` does this for a log (:doc:`../logits`).
