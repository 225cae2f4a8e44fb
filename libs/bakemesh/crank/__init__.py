"""The crank API: what an author's function is given."""
