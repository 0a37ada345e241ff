"""What ``benchmarks/deployment.py`` needs: a tracer, the phases of a round, a NumPy app."""
