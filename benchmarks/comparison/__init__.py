"""The two comparisons of rounds.py: convex problems and networks."""
