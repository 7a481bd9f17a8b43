"""``python -m mdsd``: the command line."""

from __future__ import annotations

from mdsd.cli import main

if __name__ == "__main__":
    main(prog_name="mdsd")
