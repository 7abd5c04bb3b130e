"""Reads programs from the files of other tools."""
