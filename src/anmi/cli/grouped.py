"""A group of commands whose help lists them by what people want to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click


class Grouped(click.Group):
    """A group with its commands under headings.

    Parameters
    ----------
    name
        Of the group.
    sections
        Commands by the heading that they stand under, both in the order of the help.
    options
        Those of ``click.Group``; further ``commands`` work and are not listed.
    """

    def __init__(self, name: str, sections: Mapping[str, Sequence[click.Command]], **options: Any) -> None:
        listed = {str(command.name): command for commands in sections.values() for command in commands}
        super().__init__(name, commands={**listed, **options.pop("commands", {})}, **options)
        self.sections = sections

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections, with the descriptions of all of them in one column."""
        names = [str(command.name) for commands in self.sections.values() for command in commands]
        width = max(map(len, names), default=0)
        limit = formatter.width - 6 - width
        for heading, commands in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(f"{command.name:<{width}}", command.get_short_help_str(limit)) for command in commands]
                )


class Packaged(Grouped):
    """The commands of the project; what names none of them is meant for ``run``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``run`` before what begins with none of the commands."""
        named = args and (args[0] in self.commands or args[0] in ("--help", "-h"))
        # A shell that completes the name of a command parses what stands before it, which is nothing.
        return super().parse_args(ctx, args if named or (ctx.resilient_parsing and not args) else ["run", *args])
