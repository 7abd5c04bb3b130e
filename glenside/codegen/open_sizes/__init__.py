"""Programs with open sizes: loops lowered at sample sizes, generalized to every size of a range, and verified."""
