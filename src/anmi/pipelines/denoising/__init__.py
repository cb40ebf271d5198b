"""The cross-encoder's judgment."""
