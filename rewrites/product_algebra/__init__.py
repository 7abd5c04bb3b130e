"""The equations of the algebra between layers: `glenside.algebra` applies them through its normal form."""
