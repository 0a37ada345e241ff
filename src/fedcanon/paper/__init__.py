"""The paper's tables and figures as experiments."""
