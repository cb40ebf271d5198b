"""Recipes: from judged candidates to chosen negatives."""
