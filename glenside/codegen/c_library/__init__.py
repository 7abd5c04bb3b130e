"""Programs as files of C, with a header and weights, for other programs and other machines."""
