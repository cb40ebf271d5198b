"""Lexical index and candidates."""
