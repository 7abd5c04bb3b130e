"""Defines the language: terms, types, programs, their text format, and a record for each operator and dtype."""
