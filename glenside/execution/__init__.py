"""Programs run elsewhere than in the interpreter, and what they take there."""
