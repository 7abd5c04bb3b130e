"""Facts about a program that need no search: constants, live ranges, copies."""
