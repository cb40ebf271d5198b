"""Files of a collection lie in its folder: a link in one that came from elsewhere must not reach anything else."""

from __future__ import annotations

from pathlib import Path

from anmi.errors import AnmiError


def inside(path: Path, folder: Path) -> Path:
    """Return a file of a folder, unless it is a link that leads out of it.

    Whoever packed a collection may have put a link to ``~/.aws/credentials`` in it; read as a document, that would
    be shown in reports and sent to judges. The folder itself may be a link: the user named it.

    Parameters
    ----------
    path
        A file, which need not exist.
    folder
        That it must lie in once all links are followed.

    Raises
    ------
    AnmiError
        It lies elsewhere.
    """
    try:
        leads_in = path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError) as error:
        raise AnmiError(f"{path} cannot be followed ({error}); put the file itself there") from None
    if not leads_in:
        raise AnmiError(
            f"{path} is a link that leads out of {folder}; a collection is read from its own folder alone, so put the "
            "file itself there"
        )
    return path
