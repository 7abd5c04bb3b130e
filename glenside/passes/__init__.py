"""Programs to programs: layers taken apart, constants and batch norms folded, answers extracted."""
