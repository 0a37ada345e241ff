"""What can go wrong, by who can mend it."""


class FedcanonError(Exception):
    """Something that the user can mend: one sentence that says what is wrong and what to do.

    The command line prints it without a traceback; in Python it is an ordinary exception.
    """


class DivergenceError(FedcanonError):
    """A model or an update is not finite any more: the steps are too large, or data are missing."""


class RunStoppedError(FedcanonError):
    """A run was asked to stop, and stopped after a round with a checkpoint."""


class EngineSignalError(Exception):
    """What an engine has to say to the run that it serves; no user ever sees it."""


class StartOverError(EngineSignalError):
    """The states of clients and server do not belong together any more.

    The server must begin anew from its model, by ``server_init``; the clients will too.
    """


class RegroupError(EngineSignalError):
    """Clients have left while a round waited for them: it must be begun anew without them."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is no memory left.

    PyTorch has no type for that on processors, so that this is the one place where the text of an
    error is read.
    """
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error)
