"""A study over real sites on Flower: each has its own table, and nothing but sums leaves it."""
