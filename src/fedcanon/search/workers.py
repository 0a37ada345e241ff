"""Processes that do the runs of a sweep, with one thread each."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fedcanon.runs.build import build
from fedcanon.runs.config import Config, changed
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.observers import Observer
from fedcanon.runs.training import resume, train_in
from fedcanon.runs.trust import code_named
from fedcanon.search.goal import Goal


@contextmanager
def worker_processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes.

    When an error ends the work, every run stops after its current round with a checkpoint.
    """
    # A server that has imported everything once forks the workers in no time.
    server = "forkserver" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if server else "spawn")
    context.set_forkserver_preload([__name__])
    asked_to_stop, others = context.Event(), multiprocessing.active_children()
    pool = ProcessPoolExecutor(count, context, _prepare, (asked_to_stop,))
    try:
        yield pool
    except BrokenProcessPool:
        # The pool ends the other workers by SIGTERM and waits for them; but a run takes that as a
        # wish to stop after its round, and its worker would then wait for more work.
        for process in multiprocessing.active_children():
            if process not in others:
                process.kill()
        raise
    except BaseException:
        asked_to_stop.set()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def run_once(path: Path, config: Config, goal: Goal) -> float:
    """Do one run of a sweep, or finish it if it was interrupted, and give the value it reached.

    Args:
        path: The folder of the run.
        config: Its configuration.
        goal: The measure to return.

    Raises:
        FedcanonError: The run failed, or does not have the measure.
    """
    run = RunFolder(path)
    if run.result is None:
        stop = _StopWhenAsked()
        if (path / "config.toml").is_file():
            # A seal of the run's code could be missing, but the user has just named the same code.
            known = code_named(run.config) == code_named(config)
            resume(path, observers=[stop], trust=known)
        else:
            run.discard()  # if it was killed before it was one
            alone = changed(config, {"engine.name": "serial"})  # the sweep fills the cores
            train_in(path, alone, build(alone), [stop])
    ending = run.result
    assert ending is not None  # or the training would have raised an error
    return goal.of(ending.measures)


class _StopWhenAsked(Observer):
    """Stops a run as Ctrl-C would: after a round, with a checkpoint."""

    def round(self, t: int) -> None:
        if _asked_to_stop.is_set():
            signal.raise_signal(signal.SIGTERM)


_asked_to_stop: Event
"""In a worker process: set when the sweep ends early."""


def _prepare(asked_to_stop: Event) -> None:
    """Set up a new worker process."""
    global _asked_to_stop
    _asked_to_stop = asked_to_stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the sweep decides what Ctrl-C means
    torch.set_num_threads(1)
    threadpool_limits(1)
    threading.Thread(target=_end_with_the_sweep, daemon=True).start()


def _end_with_the_sweep() -> None:
    """End this worker when the sweep was killed, or it would go on with its run."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
