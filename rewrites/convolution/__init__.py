"""Rules that compute a convolution by other products."""
