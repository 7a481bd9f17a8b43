"""
Where the lost acceptance goes
==============================

What acceptance lacks to 1 has three parts: a better verifier of the same drafts, another way of
drafting from the same model, or a better draft model would win them back.
"""

import matplotlib.pyplot as plt

from mdsd.studies import study

rows = study(
    "smollm2",
    num_drafts=[3],
    drafts=["with_replacement", "without_replacement", "greedy", "top_k"],
    verifiers=["rrs", "kseq", "greedy", "optimal"],
)
rows = sorted(rows, key=lambda row: row.acceptance)

figure, axis = plt.subplots(figsize=(7.2, 3.6), layout="constrained")
labels = [f"{row.verifier}, {row.draft}" for row in rows]
end = [row.acceptance for row in rows]
axis.barh(labels, end, color="0.85", label="accepted")
for part, colour, label in [
    ("lost_to_verifier", "#D55E00", "lost to the verifier"),
    ("lost_to_construction", "#E69F00", "lost to the way of drafting"),
    ("lost_to_model", "#0072B2", "lost to the draft model"),
]:
    lost = [max(0.0, getattr(row, part)) for row in rows]
    axis.barh(labels, lost, left=end, color=colour, label=label)
    end = [a + b for a, b in zip(end, lost)]
axis.set(xlabel="probability per step, mean over positions", xlim=(0, 1))
figure.legend(loc="outside lower center", ncols=2)
plt.show()

# %%
# ``mdsd study`` makes such rows of grids of temperatures, models and numbers of drafts
# (:doc:`../study`).
