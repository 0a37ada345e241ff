"""The operator's side of a deployment: its server, its keys, its runs and a dry run."""
