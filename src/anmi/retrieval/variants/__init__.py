"""Variants are texts that say something else than a document: swaps on the graph, counterparts, neighbours, edits."""
