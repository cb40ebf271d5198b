"""How good a ranking is, whether a difference is real, and what the mined negatives are made of."""
