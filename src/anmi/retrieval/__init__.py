"""See docs/architecture and the modules of this room."""
