"""
What verifiers make of it
=========================

A verifier turns the drafts into one token of the target's distribution. All are lossless; they
differ in how often the token is one of the drafts.
"""

import matplotlib.pyplot as plt

import mdsd
from mdsd.studies import compare

data = mdsd.datasets.load("smollm2")
rows = compare(data, num_drafts=[2, 3, 4, 6, 8], drafts=["with_replacement"])

figure, axis = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
for name in "optimal", "kseq", "rrs", "naive_tree", "naive":
    own = [row for row in rows if row.verifier == name]
    axis.errorbar(
        [row.num_drafts for row in own],
        [row.acceptance for row in own],
        [row.stderr for row in own],
        marker="o",
        capsize=2,
        label=name,
    )
own = [row for row in rows if row.verifier == "optimal"]
axis.plot([row.num_drafts for row in own], [row.bound for row in own], "k--", label="bound")
axis.set(xlabel="drafted tokens n", ylabel="acceptance, mean over positions", ylim=(0.3, 1))
axis.legend()
plt.show()

# %%
# ``optimal`` attains the bound. Bars are standard errors over positions: easy and hard places of
# the text. All verifiers see the same positions, so the differences between them are known much
# better than the bars look.
