"""Rules that cut products into the tiles of a machine."""
