"""Reading a collection into one schema."""
