"""Answers kept on disk: `store` keeps texts under keys, `answers` writes and reads results as text."""

from glenside.cache.store import Cache, CacheFull, code_version, key_of

__all__ = ["Cache", "CacheFull", "code_version", "key_of"]
