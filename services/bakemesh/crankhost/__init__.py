"""The process in which one crank runs: connects, reports, and runs the author's function."""
