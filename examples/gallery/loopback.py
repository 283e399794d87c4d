"""A Flower grid in one process: messages go to the app at once, without network or processes."""

from flwr.app import Context, RecordDict
from flwr.supercore.task_identity import TaskIdentity


class LoopbackGrid:
    """Hand every message to the app of its node and return the answers.

    Parameters
    ----------
    app : ClientApp
        What every node runs.
    configs : sequence of dict
        The ``node_config`` of each node.
    """

    def __init__(self, app, configs):
        self.app = app
        self.contexts = {
            100 + i: Context(1, 100 + i, config, RecordDict(), {})
            for i, config in enumerate(configs)
        }
        for name in ("_run_id", "_task_id", "_node_id"):  # messages carry the task that sent them
            setattr(TaskIdentity, name, 1)

    def get_node_ids(self):
        """Return who is there."""
        return list(self.contexts)

    def send_and_receive(self, messages, *, timeout=None):
        """Return the answers to the messages."""
        replies = []
        for number, message in enumerate(messages):
            node = message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = f"{node}-{number}"
            replies.append(self.app(message, self.contexts[node]))
        return replies
