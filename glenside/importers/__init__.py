"""Programs from other people's files."""
