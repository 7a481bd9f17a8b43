"""The group of all commands: every failure is one line on standard error."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import click

from mdsd._arguments import one_line
from mdsd._version import __version__
from mdsd.cli._completion import use_own_shells
from mdsd.errors import MdsdError


class _Interrupted(click.ClickException):
    exit_code = 130


class _Commands(click.Group):
    """A group whose every failure is one line on standard error."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        use_own_shells()
        try:
            with _warnings_in_one_line():
                result = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()  # a full disk is often found out about only here
        except (_Interrupted, click.Abort, KeyboardInterrupt):
            _fail("interrupted", 130)
        except click.ClickException as error:
            _fail(error.format_message(), 2)
        except MdsdError as error:
            _fail(str(error), 2)
        except MemoryError as error:
            _fail(f"not enough memory: {error}".removesuffix(": "), 2)
        except OSError as error:
            _abandon_stdout()
            if error.errno == errno.EPIPE:
                sys.exit(1)
            _fail(f"{error.filename or 'standard output'}: {error.strerror or error}", 2)
        sys.exit(result if isinstance(result, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        # Before click sees it: click prints an empty line for an interrupt.
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _Interrupted("interrupted") from None


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Say what libraries warn of on standard error, without the place in their code."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        click.echo(f"mdsd: warning: {one_line(message)}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _abandon_stdout() -> None:
    """Let Python's own flush at the end find a file that takes all."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"mdsd: {one_line(message)}", err=True)
    sys.exit(code)


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="mdsd", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Study bounds and verifiers of multi-draft speculative decoding on real distributions."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")  # a terminal without ± is no reason to lose a table
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
