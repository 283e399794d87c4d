"""
A round between processes that do not trust each other
======================================================

Sessions take bytes and give bytes; what carries them is up to you. Here eight clients and a
server exchange messages through a dictionary, two clients vanish, and every byte is counted.
Between machines, ``sparse-secagg serve`` and ``join`` carry the same bytes over TLS.
"""

import tempfile
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from sparse_secagg import (
    AgentPolicy,
    Budget,
    ClientAgent,
    ClientSession,
    Identity,
    Roster,
    RoundConfig,
    RoundSpec,
    ServerSession,
    announce_round,
    server_decode,
)

# %%
# Each client has a signing key of its own, and somebody whom the clients trust keeps the roster.
N, D = 8, 200
people = [Identity.new() for _ in range(N)]
roster = Roster("gallery")
for i, person in enumerate(people):
    roster = roster.add(f"client {i}", person.public)

# %%
# The server announces the round: ε, mechanism, graph, thresholds, in one JSON document. Each
# client's agent recomputes ε, checks it against the client's own limits, and charges a lifetime
# budget on the client's disk before anything leaves.
spec = RoundSpec(epsilon=4.0, encoder="identity", n_bits=20)
document = announce_round(spec, D, roster, dropout=0.3)
server = ServerSession(document, roster=roster)
folder = Path(tempfile.mkdtemp())


def join(i):
    agent = ClientAgent(
        AgentPolicy(max_epsilon=4.0, max_delta=1e-5),
        Budget(folder / f"{i}.sqlite", epsilon=8.0, delta=1e-5),
    )
    return ClientSession(document.to_json(), identity=people[i], roster=roster, agent=agent)


# %%
# The stages. ``client.mask`` encodes the vector, adds this client's share of the noise, and masks
# it: a single message is a uniformly random vector to everybody.
vector = 0.9 * np.sin(np.arange(D) / 10) / np.sqrt(D / 2)
clients, sent = {i: join(i) for i in range(N)}, Counter()
for stage in document.stages:
    if stage == "mask":
        del clients[2]  # leaves after its keys were shared
    for i, client in clients.items():
        data = client.start() if stage == "advertise" else client.receive(server.message_for(i))
        data = client.mask(vector) if client.wants_vector else data
        server.receive(data)
        sent[stage] += len(data)
    server.close_stage()
print("in the sum:", server.survivors.tolist())

# %%
# The server decodes the sum. Left, what the sum says; right, what each stage of the protocol
# costs a client.
config = RoundConfig.from_json(document.context)
estimate = server_decode(config, server.total(), server.survivors.tolist())
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
left.plot(estimate, linewidth=0.8, label="decoded from the sum")
left.plot(vector, color="0.3", label="mean")
left.legend(fontsize=8)
right.bar(list(sent), [sent[stage] / N for stage in sent])
right.set(ylabel="bytes sent per client")
right.tick_params(axis="x", rotation=30)
plt.show()
