"""Which queries BM25 agrees with."""
