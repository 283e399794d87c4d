"""
Private counts from a table
===========================

Which names of NumPy and scikit-learn do the files of Python's standard library use, and how many
files use each? A file stands for a user who holds a set of items. The counts below could be
published: together they are (1, 1e-6)-differentially private, and each has an interval.
"""

import matplotlib.pyplot as plt
import numpy as np

from experiments.datasets import choose_domain, python_identifiers
from experiments.report.style import decoder_style
from sparse_secagg import PrivateCounts

# %%
# A table of users and items. The list of what may be counted must be public: here, the names
# that occur in NumPy's and scikit-learn's own code.
data = python_identifiers()
domain = choose_domain(None, data)
users = np.repeat(np.arange(len(data.clients)), np.diff(data.presence.indptr))
items = [data.vocabulary[k] for k in data.presence.indices]
print(f"{len(data.clients)} users, {len(items)} pairs, {domain.description}")

# %%
# One line fits; ``simulation_seed`` makes this page repeatable, and would not be given otherwise.
counts = PrivateCounts(
    domain=list(domain.names(range(domain.size))), epsilon=1.0, delta=1e-6,
    random_state=0, simulation_seed=0,
)  # fmt: skip
counts.fit(users, items)
print(counts.statement())

# %%
# Intervals of the items that came out on top are widened, because they were picked for being
# large. What bounding takes away (each user counts for at most ``max_items_`` items) is not in
# them: it depends on the data.
top = counts.top(25)
exact = dict(zip(domain.names(range(domain.size)), np.diff(data.on(domain).tocsc().indptr)))
figure, panel = plt.subplots(figsize=(8, 5), layout="constrained")
place = np.arange(len(top))
panel.barh(place, [exact[r.item] for r in top], color="0.88", label="exact (not private)")
value = np.array([r.count for r in top])
error = [value - [r.low for r in top], [r.high for r in top] - value]
colour = decoder_style("amp")["color"]
panel.errorbar(value, place, xerr=error, fmt="X", color=colour, label="private, with interval")
panel.set_yticks(place, [r.item for r in top], fontsize=8)
panel.invert_yaxis()
panel.set(xlabel="files", title=f"(1, 1e-6)-DP, at most {counts.max_items_} names per file")
panel.legend()
plt.show()
