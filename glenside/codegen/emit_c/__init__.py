"""Prints loop nests as C: scalar and vector code, threads, translation units."""
