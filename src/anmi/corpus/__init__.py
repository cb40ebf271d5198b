"""Reading collections into one checked schema, and what a collection is."""
