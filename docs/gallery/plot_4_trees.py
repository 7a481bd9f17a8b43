"""
Which tree to draft
===================

A decoder drafts a tree of tokens, which the target reads in one call. The best tree for a number of
nodes follows from how often the first, second, third child of a node is the one accepted.
"""

import matplotlib.pyplot as plt
import numpy as np

import mdsd
from mdsd.analysis import plan_tree

data = mdsd.datasets.load("smollm2")
target = mdsd.probs_from_logits(data.target_table)
drafted = mdsd.probs_from_logits(data.draft_tables["drop2"])

# How much more often one of r + 1 drafts is accepted than one of r.
rates = [
    mdsd.acceptance_rates(target, drafted, draft="with_replacement", num_drafts=n, verifier="rrs")
    for n in range(1, 5)
]
acceptance = np.diff([0.0, *(rate.mean() for rate in rates)])
plan = plan_tree(acceptance, node_budget=16)
tree = plan.tree

# %%
# Leaves stand side by side, and a parent in the middle of its children.


def place(node, places):
    for child in tree.children(node):
        place(child, places)
    below = [places[child] for child in tree.children(node)]
    places[node] = np.mean(below) if below else sum(not tree.children(k) for k in places)
    return places


places = place(0, {})
chances = [1.0]  # that a step comes to a node
for node in range(1, tree.num_nodes + 1):
    parent = tree.parents[node]
    chances.append(chances[parent] * acceptance[node - tree.children(parent)[0]])

figure, axis = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
for node in range(1, tree.num_nodes + 1):
    ends = tree.parents[node], node
    axis.plot([places[k] for k in ends], [tree.depths[k] for k in ends], color="0.6", zorder=1)
nodes = range(tree.num_nodes + 1)
dots = axis.scatter([places[k] for k in nodes], tree.depths, s=150, c=chances, cmap="cividis_r")
figure.colorbar(dots, label="probability that a step accepts the node")
axis.set(ylabel="depth", xticks=[], ylim=(tree.depth + 0.5, -0.5))
axis.set_title(f"{plan.expected_tokens:.2f} tokens expected for a call of the target")
plt.show()

# %%
# The plan goes into a decoder as it is, ``generate(..., tree=plan)``. ``mdsd plan-tree`` prints and
# draws trees for other verifiers, too (:doc:`../analysis`).
