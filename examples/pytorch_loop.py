"""Handwritten digits in a plain PyTorch loop: four lines make its averaging private.

pip install -e ".[torch]" && python examples/pytorch_loop.py
"""

import numpy as np
import torch
from sklearn.datasets import load_digits

from sparse_secagg import RoundSpec
from sparse_secagg.torch import flatten, unflatten

N_CLIENTS, ROUNDS = 100, 20


def train(model, pixels, labels):
    """Return the state of the model after some steps on one client's digits."""
    twin = torch.nn.Linear(64, 10)
    twin.load_state_dict(model.state_dict())
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.5)
    for _ in range(5):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(twin(pixels), labels).backward()
        optimizer.step()
    return twin.state_dict()


def main():
    """Train, and print the accuracy and what it cost."""
    torch.set_num_threads(1)  # the model is too small to share
    pixels, labels = load_digits(return_X_y=True)
    pixels, labels = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    test, clients = order[:397], order[397:].tensor_split(N_CLIENTS)
    model = torch.nn.Linear(64, 10)
    spec = RoundSpec(epsilon=8.0, rounds=ROUNDS, clip_norm=1.0, encoder="identity", n_bits=20)
    for _ in range(ROUNDS):
        before = model.state_dict()
        updates = [flatten(train(model, pixels[c], labels[c]), before) for c in clients]
        aggregate = spec.run(np.stack(updates))
        model.load_state_dict(unflatten(flatten(before) + aggregate.decode("linear"), before))
    found = model(pixels[test]).argmax(dim=1)
    print(
        f"accuracy {float((found == labels[test]).float().mean()):.3f} after {ROUNDS} rounds, "
        f"epsilon = {spec.epsilon:g} in all, {aggregate.bits_per_client // 8} bytes per client and "
        "round"
    )


if __name__ == "__main__":
    main()
