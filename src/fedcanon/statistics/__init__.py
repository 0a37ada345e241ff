"""Sparse statistics over sites: models, intervals and their quality, from sums alone."""
