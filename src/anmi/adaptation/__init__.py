"""What a corpus teaches without labels: pseudo-queries made of its own documents, and their filters."""
