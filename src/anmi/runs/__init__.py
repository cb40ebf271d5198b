"""One run: what is noted of it, and what can be done with it later: list, resume, reproduce, compare, prune."""
