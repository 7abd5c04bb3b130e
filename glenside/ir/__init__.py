"""The language: terms, types, programs, their text, and a record for each operator and dtype."""
