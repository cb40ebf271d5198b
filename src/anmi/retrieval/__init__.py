"""Candidates come from lexical and dense retrieval over the whole corpus, merged into one list."""
