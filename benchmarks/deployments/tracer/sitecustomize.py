"""Writes down when processes start and what they request over HTTP; Python imports it by itself.

It is in the PYTHONPATH of the processes that are measured. Every event is a line of JSON in the
file that FEDCANON_TRACE names.
"""

import json
import os
import sys
import time
from functools import cache
from pathlib import Path

UP = time.time()
FILE = os.environ.get("FEDCANON_TRACE")


def note(what, begin, end, port=None):
    line = json.dumps([what, os.getpid(), port, begin, end]) + "\n"
    handle = os.open(FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, line.encode())
    os.close(handle)


def created():
    """When this process was created, to a hundredth of a second."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return UP - (uptime - ticks / os.sysconf("SC_CLK_TCK"))


def own_port():
    """The port of a SuperNode, among its arguments."""
    words = sys.orig_argv
    return int(words[words.index("--port") + 1]) if "--port" in words else None


@cache
def note_calls():
    """Note when a ClientApp is called: everything has been imported then."""
    from flwr.clientapp import ClientApp

    call = ClientApp.__call__

    def traced(self, message, context):
        note("called", time.time(), time.time())
        return call(self, message, context)

    ClientApp.__call__ = traced


if FILE:
    import httpx

    note("process", created(), UP, own_port())
    os.register_at_fork(after_in_child=lambda: note("process", time.time(), time.time()))
    send = httpx.Client.send

    def traced(self, request, **options):
        if request.url.path == "/v1/runtime/pull-task-input":
            note_calls()
        begin = time.time()
        response = send(self, request, **options)
        note(request.url.path, begin, time.time(), request.url.port)
        return response

    httpx.Client.send = traced
