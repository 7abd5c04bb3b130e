"""Results of searches on disk: `store` keeps texts under keys, `search_results` converts results to and from text."""

from glenside.cache.store import Cache, CacheFull, code_version, key_of

__all__ = ["Cache", "CacheFull", "code_version", "key_of"]
