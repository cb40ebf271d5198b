"""A web page shows one run: it searches by what was trained, shows a query's candidates, and takes marks."""
