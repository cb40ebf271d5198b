"""A web page over one run: search by what it trained, look at a query's candidates, and mark pairs."""
