"""Files that are there in full or not at all, and paths for messages."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from mdsd._arguments import one_line, shown
from mdsd.errors import InvalidArgumentError

_ENDINGS_OF_FILES = frozenset(
    (
        *(".csv", ".tsv", ".json", ".jsonl", ".npz", ".npy", ".parquet", ".txt", ".md", ".html"),
        *(".png", ".svg", ".pdf", ".jpg", ".jpeg", ".gif", ".webp", ".zip", ".tar", ".gz"),
        *(".gguf", ".safetensors"),
    )
)
"""What nobody means a folder by."""

# What systems say of a hard link that they cannot make, where a new name might still be possible.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def as_path(path: Any, name: str = "path") -> Path:
    """Read an argument as a path.

    Raises
    ------
    InvalidArgumentError
        If it is neither a str nor an os.PathLike of one, or no system could take it.
    """
    try:
        file = Path(path)
    except TypeError:
        raise InvalidArgumentError(
            f"{name} is {shown(path)} of type {type(path).__name__}; expected a str or os.PathLike"
        ) from None
    try:
        with suppress(OSError):
            file.lstat()
    except ValueError as error:  # a null byte, or what its bytes cannot say
        raise InvalidArgumentError(f"{path_name(file)}: {one_line(error)}") from None
    return file


def path_name(path: Path) -> str:
    r"""Write a path for a message, in one line.

    Examples
    --------
    >>> path_name(Path("mine.npz")), path_name(Path("a\nb"))
    ('mine.npz', "'a\\nb'")
    """
    return str(path) if str(path).isprintable() else repr(str(path))


@contextmanager
def os_errors(path: Path, problem: str = "") -> Iterator[str]:
    """Name a file or a folder in the errors that the system has with it in the block.

    Parameters
    ----------
    path : path
    problem : str, default ""
        What stands before the reason.

    Yields
    ------
    str
        Its name, for further messages.

    Raises
    ------
    InvalidArgumentError
        If the block raises an OSError.
    """
    name = path_name(path)
    try:
        yield name
    except OSError as error:
        raise InvalidArgumentError(f"{name}: {problem}{os_reason(path, error)}") from None


def check_folder_name(name: str, path: Path, expected: str = "a folder") -> None:
    """Refuse to make a folder under the name of a file; one that is there may be called anything.

    Parameters
    ----------
    name : str
        Of the argument.
    path : path
    expected : str, default "a folder"
        What it could be.

    Raises
    ------
    InvalidArgumentError
        If a new folder would have a name such as ``x.csv`` or ``x.png``.

    Examples
    --------
    >>> check_folder_name("output", Path("results.v2"))
    >>> check_folder_name("output", Path("results.csv"))
    Traceback (most recent call last):
      ...
    mdsd.errors.InvalidArgumentError: output is results.csv, the name of a file; expected a folder
    """
    for new in (folder for folder in (path, *path.parents) if not os.path.lexists(folder)):
        if new.suffix.lower() in _ENDINGS_OF_FILES:
            of = "" if new == path else f"{path_name(new)} has "
            raise InvalidArgumentError(
                f"{name} is {path_name(path)}, {of}the name of a file; expected {expected}"
            )


def os_reason(path: Path, error: OSError) -> str:
    """Say why a file cannot be read or made: where a folder above it is missing, which one."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        for folder in (*path.parents[::-1], *destination(path).parents[::-1]):
            if not folder.exists():
                return f"there is no folder {path_name(folder)}"
            if not folder.is_dir():
                return f"{path_name(folder)} is no folder"
    return error.strerror or one_line(error)


def destination(path: Path) -> Path:
    """Where a link leads: the file is replaced, and the link stays one."""
    return Path(os.path.realpath(path))


def temporary_path(path: Path) -> Path:
    """Name what becomes a file when it is complete: in the same folder, and hidden."""
    place = destination(path)
    return place.with_name(f".{place.name}.{os.getpid()}.tmp")


@contextmanager
def new_file(path: Path, *, replacing: bool = False) -> Iterator[BinaryIO]:
    """Write a file that is there in full, on the disk, or not at all.

    It is written under a temporary name in the same folder; if the block fails, nothing is left,
    and after a kill at most the temporary file.

    Parameters
    ----------
    path : path
        A name in a folder that exists.
    replacing : bool, default False
        Take the place of a file of that name, which is there until then; otherwise it replaces
        none.

    Raises
    ------
    InvalidArgumentError
        If it cannot be written, or the name is taken by the time the block ends.
    """
    temporary = temporary_path(path)
    try:
        with temporary.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if replacing:
            temporary.replace(path)
        else:
            _give_name(temporary, path)
        _sync_folder(path.parent)
    except FileExistsError:
        raise InvalidArgumentError(f"{path_name(path)}: is there already") from None
    except OSError as error:
        reason = os_reason(path, error)
        raise InvalidArgumentError(f"{path_name(path)}: cannot be written: {reason}") from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Have a folder alone while the block runs, among all that ask for it this way.

    A kill frees it. On systems and disks without such locks nobody is kept out.

    Parameters
    ----------
    folder : path
        One that exists.

    Raises
    ------
    InvalidArgumentError
        If another process has it, or it cannot be read.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with os_errors(folder) as name:
        opened = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidArgumentError(f"{name}: another process is writing to it") from None
        except OSError:  # disks over a network may have no locks
            pass
        yield
    finally:
        os.close(opened)


def _give_name(temporary: Path, path: Path) -> None:
    """Make a file known under a name that nobody has: unlike a renaming, a link replaces none."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(path):
            raise FileExistsError from None
        temporary.rename(path)


def _sync_folder(folder: Path) -> None:
    """Bring the names of a folder to the disk, on systems where that is a thing to ask for."""
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
