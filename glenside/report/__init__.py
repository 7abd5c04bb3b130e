"""What an optimization did: rows of measures, the words for mappings, plots, pages and pictures of e-graphs."""
