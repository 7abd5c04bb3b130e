"""E-graphs: encoding of terms and types, saturation under limits, snapshots. Rules come in as values."""
