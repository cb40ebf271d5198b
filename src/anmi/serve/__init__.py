"""A web page shows one run: its search, the candidates of queries, and marks."""
