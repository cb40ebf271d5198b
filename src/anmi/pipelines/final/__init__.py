"""The training on what was held out as well, whose search is deployed."""
