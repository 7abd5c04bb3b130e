"""Reports optimizations: rows of measures, texts, plots, pages and pictures of e-graphs."""
