"""Training the retriever."""
