"""Program passes: splits programs into layers, folds constants and batch norms, extracts answers."""
