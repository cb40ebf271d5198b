"""Variants say something else than a document: swaps, counterparts, neighbours, edits."""
