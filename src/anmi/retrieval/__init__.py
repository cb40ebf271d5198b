"""Sources of candidates: lexical and dense retrieval over the whole corpus, and how they are merged."""
