"""What a corpus teaches without labels: pseudo-queries made of its documents, and filters."""
