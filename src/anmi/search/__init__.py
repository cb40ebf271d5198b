"""The trained systems as a user's search: BM25 and the dense encoder, alone and fused."""
