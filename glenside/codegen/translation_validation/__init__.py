"""Translation validation: whether loops compute what their terms are, at sampled elements (`samples`)."""
