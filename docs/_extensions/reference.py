"""The directive ``reference``: a table of names, and below it what their docstrings say."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docutils.nodes import Node
    from sphinx.application import Sphinx

_NO_MEMBERS_OF = "Exception, Generic, Mapping, Protocol, object, tuple"


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the directive known."""
    from docutils.statemachine import StringList
    from sphinx.ext.autosummary import import_by_name
    from sphinx.util.docutils import SphinxDirective

    class Reference(SphinxDirective):
        """Names of the current module, one a line."""

        has_content = True

        def run(self) -> list[Node]:
            module = self.env.ref_context["py:module"]
            names = [line.strip() for line in self.content if line.strip()]
            lines = [".. autosummary::", "   :nosignatures:", ""]
            lines += [f"   {name}" for name in names]
            for name in names:
                found = import_by_name(f"{module}.{name}")[1]
                lines += ["", *_document(name, found)]
            return self.parse_text_to_nodes(StringList(lines, source=self.get_source_info()[0]))

    app.add_directive("reference", Reference)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _document(name: str, found: object) -> list[str]:
    if not inspect.isclass(found):
        kind = "function" if inspect.isroutine(found) else "data"
        return [f".. auto{kind}:: {name}"]
    kind = "exception" if issubclass(found, Exception) else "class"
    lines = [f".. auto{kind}:: {name}", "   :members:"]
    lines.append(f"   :inherited-members: {_NO_MEMBERS_OF}")
    return [*lines, "   :show-inheritance:"] if kind == "exception" else lines
