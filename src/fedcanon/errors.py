"""The one exception that a user's mistake raises."""


class FedcanonError(Exception):
    """A mistake in what the user asked for: one sentence that says what is wrong and what to do.

    The command line prints it without a traceback; in Python it is an ordinary exception.
    """
