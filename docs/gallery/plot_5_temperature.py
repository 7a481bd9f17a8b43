"""
Temperature
===========

The same three drafts a step at temperatures from 0.1 to 1: the bound of each way of drafting, and
what the verifiers that need no search make of it.
"""

import matplotlib.pyplot as plt

from mdsd.studies import study

rows = study(
    "smollm2",
    num_drafts=[3],
    temperatures=[0.1, 0.2, 0.4, 0.6, 0.8, 1.0],
    drafts=["with_replacement", "without_replacement", "greedy"],
    verifiers=["rrs", "kseq", "greedy"],
)

figure, axis = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
colours = {"with_replacement": "C0", "without_replacement": "C1", "greedy": "C2"}
styles = {"rrs": "o:", "kseq": "s:", "greedy": "^:"}
for draft, verifier in {(row.draft, row.verifier): None for row in rows}:
    own = [row for row in rows if (row.draft, row.verifier) == (draft, verifier)]
    heat = [row.filters.temperature for row in own]
    look = {"color": colours[draft], "label": f"{verifier}, {draft}"}
    axis.plot(heat, [row.acceptance for row in own], styles[verifier], **look)
    if verifier != "kseq":  # one line for each way of drafting
        axis.plot(heat, [row.bound for row in own], color=colours[draft], label=f"bound, {draft}")
axis.set(xlabel="temperature", ylabel="acceptance, mean over positions", ylim=(0.6, 1))
figure.legend(loc="outside right upper")
plt.show()

# %%
# Near 0 the target nearly always takes its most probable token: what counts is that it is drafted,
# and drawing with replacement may draft the same token three times. Verifiers stay further below
# their bound the higher the temperature.
