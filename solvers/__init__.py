"""Optimisation on arrays: the mathematics under mdsd, free of any word about models or decoding.

`transport`, `lp`, `matching` and `subsets` state the problem explicitly, one row per set of drafted
tokens; `prefix`, `hitting`, `polymatroid` and `marks` solve it without enumerating anything.
`tree_lp` states that of whole trees of strings.

mdsd knows this package as `mdsd._solvers`, so that a module `solvers` of a user's may stand beside
it. Imported under both names, it is there twice.
"""

from __future__ import annotations

__distribution__ = "mdsd"
"""Checked by mdsd where it loads this folder from beside its own: another package of the same
generic name would overwrite it.
"""
