"""Make a table to count: sales.csv, who bought what, and catalogue.txt, what there is to buy.

Run it as ``python examples/sales.py``; it writes to the current folder.
"""

from pathlib import Path

import numpy as np

SHARES = {
    "bread": 0.85, "milk": 0.70, "tea": 0.48, "coffee": 0.41, "cheese": 0.30, "apples": 0.22,
    "rice": 0.14, "honey": 0.08, "olives": 0.05, "lentils": 0.03, "saffron": 0.004, "truffles": 0.0,
}  # fmt: skip

rng = np.random.default_rng(0)
bought = rng.random((2000, len(SHARES))) < list(SHARES.values())
names = list(SHARES)
lines = [f"{user},{names[item]}" for user, item in zip(*np.nonzero(bought))]
Path("sales.csv").write_text("\n".join(["user_id,product", *lines]) + "\n")
Path("catalogue.txt").write_text("\n".join(names) + "\n")
