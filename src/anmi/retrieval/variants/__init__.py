"""Variants of documents that say something else: entities swapped on the graph, counterparts, and edits by rule."""
