"""How nodes with many inputs are wired: by name."""

from __future__ import annotations


def by_name(*datasets: str, **renamed: str) -> dict[str, str]:
    """Return the inputs of a node by the names of its function's arguments.

    Parameters
    ----------
    datasets
        Those that the function calls as the catalog does; of ``params:x`` the argument is ``x``.
    renamed
        The others, each under the name of its argument.

    Examples
    --------
    >>> by_name("corpus", "params:seed", params="params:elo")
    {'corpus': 'corpus', 'seed': 'params:seed', 'params': 'params:elo'}
    """
    return {name.removeprefix("params:"): name for name in datasets} | renamed
