"""The help of every command, as the command prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docutils.nodes import Node
    from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the directive ``command-help`` known."""
    import click
    from docutils import nodes
    from docutils.parsers.rst import Directive

    from mdsd.cli import main

    class CommandHelp(Directive):
        """A section for each command."""

        def run(self) -> list[Node]:
            found: list[Node] = []
            context = click.Context(main, info_name="mdsd", max_content_width=96)
            commands: list[tuple[str, Any]] = [("mdsd", main)]
            commands += [(f"mdsd {name}", each) for name, each in sorted(main.commands.items())]
            for name, command in commands:
                own = (
                    context
                    if command is main
                    else click.Context(
                        command, info_name=command.name, parent=context, max_content_width=96
                    )
                )
                text = command.get_help(own)
                section = nodes.section(ids=[nodes.make_id(name)], names=[name])
                section += nodes.title(text=name)
                section += nodes.literal_block(text, text, language="text")
                found.append(section)
            return found

    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
