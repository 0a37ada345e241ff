"""What others can learn of a client's data: from its updates, and from the trained model."""
