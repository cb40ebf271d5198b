"""How nodes are wired: those with many inputs by name, those of a stage in a namespace that folds them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kedro.pipeline import Node, Pipeline

if TYPE_CHECKING:
    from kedro.pipeline.preview_contract import TextPreview


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


class StageNode(Node):  # type: ignore[misc]
    """A node whose innermost namespace is its stage, which is no part of its name.

    By the namespace Kedro-Viz folds a stage, and ``kedro run --namespaces`` and deployments group its nodes. Kedro
    would put it before the name, too; but in records, logs and commands a node is told by its own name alone.
    """

    @property
    def name(self) -> str:
        """The node's name, after the namespaces around its stage where it has some."""
        *around, _ = str(self.namespace).split(".")
        return ".".join([*around, self.short_name])

    def _copy(self, **changed: Any) -> StageNode:
        # Kedro copies nodes to map their datasets and tags, and always into its own class.
        return _of_stage(super()._copy(**changed))

    def preview(self) -> TextPreview:
        """Return what the node does, in the words of its function, for Kedro-Viz."""
        from kedro.pipeline.preview_contract import TextPreview

        return TextPreview(content=(inspect.getdoc(self.func) or self.name).replace("``", "`"))


def stage(name: str, nodes: Iterable[Node]) -> Pipeline:
    """Return a pipeline that folds, in which nodes and datasets are called as they are.

    Examples
    --------
    >>> bm25 = stage("bm25", [Node(len, "corpus", "terms", name="cut_terms")])
    >>> [(node.name, node.namespace) for node in bm25.nodes]
    [('cut_terms', 'bm25')]
    >>> audit = Pipeline(bm25, namespace="audit")
    >>> [(node.name, node.namespace, node.inputs) for node in audit.nodes]
    [('audit.cut_terms', 'audit.bm25', ['audit.corpus'])]
    """
    return Pipeline([_of_stage(node._copy(namespace=name)) for node in nodes])


def _of_stage(node: Node) -> StageNode:
    node.__class__ = StageNode
    found: StageNode = node
    return found
