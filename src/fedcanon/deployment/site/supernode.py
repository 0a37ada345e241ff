"""A SuperNode made of Flower's own parts, without Flower's waiting.

Flower's SuperNode waits for three seconds if there is no message, half a second for an answer and a
second for a part of a message that is still on its way; none of these can be set. Here the same
functions of Flower are called in the same order, and only the loop around them is ours. Its
arguments are those of ``flower-supernode``.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time

from flwr.common.constant import Status, SubStatus
from flwr.supercore.exit import ExitCode, add_exit_handler, flwr_exit, register_signal_handlers
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.telemetry import EventType
from flwr.supernode import start_client_internal
from flwr.supernode.cli.flower_supernode import (
    SuperNodeLifespanConfig,
    _parse_supernode_lifespan_config,
    _start_supernode_http_api,
)
from flwr.supernode.fleet_http_connection import http_request_response
from flwr.supernode.nodestate import NodeState, NodeStateFactory
from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

from fedcanon.deployment.flower.internals import ask_again_soon
from fedcanon.deployment.flower.waiting import AT_HOME, AT_SERVER, pause, say

UNFINISHED = (Status.PENDING, Status.STARTING, Status.RUNNING)


def main() -> None:
    """Run the SuperNode until it is ended."""
    logging.getLogger("flwr").setLevel(logging.WARNING)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    ask_again_soon(start_client_internal, "pull_objects")
    config = _parse_supernode_lifespan_config()
    factory = NodeStateFactory(objectstore_factory=ObjectStoreFactory())
    server, _ = _start_supernode_http_api(config, factory)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)

    def stop_server() -> None:
        server.should_exit = True

    add_exit_handler(stop_server)
    register_signal_handlers(event_type=EventType.RUN_SUPERNODE_LEAVE)
    _answer_messages(config, factory)
    flwr_exit(ExitCode.SUPERNODE_CONNECTION_ERROR, "The connection to the SuperLink was lost.")


def _end_with(parent: int) -> None:
    """End this process when its parent has ended."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


def _answer_messages(config: SuperNodeLifespanConfig, factory: NodeStateFactory) -> None:
    """Fetch message after message for the worker, and send its answers."""
    state, store = factory.state(), factory.objectstore_factory.store()
    with http_request_response(
        config.server_address, config.insecure, config.root_certificates, config.authentication_keys
    ) as (node, receive, send, get_run, get_fab, pull_object, push_object, confirm):
        state.set_node_id(node)
        say(f"connected as node {node}")
        last = time.monotonic()
        while True:
            run = start_client_internal._pull_and_store_message(
                state=state,
                object_store=store,
                node_config=config.node_config,
                receive=receive,
                get_run=get_run,
                get_fab=get_fab,
                pull_object=pull_object,
                confirm_message_received=confirm,
                trusted_entities=None,
            )
            if run is None:
                _give_up_tasks(state)
                time.sleep(pause(last, AT_SERVER))
                continue
            if _is_answered(state, run):
                start_client_internal._push_messages(
                    state=state, object_store=store, send=send, push_object=push_object
                )
            else:
                say("a message was not answered: the worker has failed")
                state.delete_messages()
            last = time.monotonic()


def _give_up_tasks(state: NodeState) -> None:
    """End the task of a message that did not arrive whole, because its run has ended.

    Flower leaves such a task open, and the worker would wait for the rest of the message for hours.
    """
    for task in state.get_tasks(statuses=UNFINISHED):
        say("a message did not arrive whole: its run has ended")
        state.finish_task(task.task_id, SubStatus.STOPPED, "the message did not arrive whole")
        state.delete_messages()


def _is_answered(state: NodeState, run: int) -> bool:
    """Wait for the end of the task, and return whether there is an answer."""
    begun = time.monotonic()
    while state.get_tasks(run_ids=[run], statuses=UNFINISHED):
        time.sleep(pause(begun, AT_HOME))
    assert isinstance(state, InMemoryNodeState)
    return any(entry.message.metadata.reply_to_message_id for entry in state.msg_store.values())


if __name__ == "__main__":
    main()
