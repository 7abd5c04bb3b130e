"""Translation validation: checks at sampled elements that loops compute their terms (`validate`)."""
