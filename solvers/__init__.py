"""Optimisation on arrays: the mathematics under mdsd, free of any word about models or decoding.

`transport`, `lp`, `matching` and `subsets` state the problem explicitly, one row per set of drafted
tokens; `prefix`, `hitting`, `polymatroid` and `marks` solve it without enumerating anything.
`tree_lp` states that of whole trees of strings.
"""

from __future__ import annotations

__distribution__ = "mdsd"
"""Checked by mdsd on import: another package of the same generic name would overwrite this one."""
