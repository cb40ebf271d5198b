"""How nodes are wired: many inputs by name, and a stage in a namespace that Kedro-Viz folds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kedro.pipeline import Node, Pipeline


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


def node(function: Callable[..., Any], inputs: Any, outputs: Any, name: str | None = None) -> Node:
    """Return a node that is called as its function, unless it is given a name.

    Examples
    --------
    >>> node(len, "corpus", "size").name
    'len'
    """
    return Node(function, inputs, outputs, name=name or function.__name__)


def stage(name: str, nodes: Iterable[Node]) -> Pipeline:
    """Return a pipeline in a namespace of its own, also the tag; datasets keep their names.

    Examples
    --------
    >>> [(node.name, node.tags) for node in stage("bm25", [node(len, "corpus", "terms")]).nodes]
    [('bm25.len', {'bm25'})]
    """
    return Pipeline(nodes, namespace=name, prefix_datasets_with_namespace=False, tags=name)
