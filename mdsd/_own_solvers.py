"""The solvers beside mdsd under a name of mdsd's own, so that `solvers` may be a user's module.

The folder `solvers` of a checkout is `mdsd/_solvers` as well, by a link; an installation has a copy
in its place. Where neither is there, as in a checkout on a system without links, the folder beside
mdsd is loaded under that name. Nothing called `solvers` is ever imported.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

NAME = "mdsd._solvers"


def _load() -> None:
    """See to it that modules of `mdsd._solvers` can be imported.

    Raises
    ------
    ImportError
        If the folder beside mdsd is needed, but missing or another package's.
    """
    if (Path(__file__).parent / "_solvers" / "__init__.py").is_file():
        return
    folder = Path(__file__).parents[1] / "solvers"
    spec = spec_from_file_location(
        NAME, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None or not (folder / "__init__.py").is_file():
        raise ImportError(f"{folder}, which mdsd needs beside it, is missing; install mdsd again")
    module = sys.modules[NAME] = module_from_spec(spec)
    spec.loader.exec_module(module)
    if getattr(module, "__distribution__", None) != "mdsd":
        del sys.modules[NAME]
        raise ImportError(
            f"{folder} does not belong to mdsd: another package of that name has overwritten it; "
            "install mdsd into an environment of its own"
        )
    vars(sys.modules["mdsd"])["_solvers"] = module  # as the import of a package does


_load()
