"""Facts about a program that need no search: what is constant, how long values live, what is copied."""
