"""Rules that compute a convolution by means of other products."""
