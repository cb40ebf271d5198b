"""What runs leave behind and what can be done with it: list, reproduce, resume, prune."""
