"""Dense index, and the merged block of candidates."""
