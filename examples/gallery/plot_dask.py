"""
A sweep on Dask
===============

The same sweep runs on one core, on many, or on a cluster, and gives the same results to the last
bit. Install the extra ``dask``, start a client, and name the backend.
"""

import matplotlib.pyplot as plt
from distributed import Client

from experiments import Grid, MeanCell, run_sweep
from experiments.report.style import decoder_style

grid = Grid(
    {"compression": [2, 5, 10, 20]},
    MeanCell(dim=1000, clients=100, mean="power_law", noise_multiplier=0.5),
    decoders=["linear", "working_set", "amp"],
    seeds=2,
)

# %%
# A client of a scheduler, here inside this process; on a cluster, its address.
settings = {"n_workers": 1, "threads_per_worker": 2, "dashboard_address": ":0"}
with Client(processes=False, protocol="tcp", **settings) as client:
    address = client.scheduler.address  # on a cluster: tcp://HOST:8786
    on_dask = run_sweep(grid, backend="dask", scheduler=address)
here = run_sweep(grid, backend="sequential")
same = all(
    a.metrics["relative_error"] == b.metrics["relative_error"]
    for a, b in zip(on_dask.results, here.results)
)
print("identical to the last bit:", same)

# %%
# The mean decays as a power law, so compression costs every decoder something.
figure, panel = plt.subplots(figsize=(7, 4), layout="constrained")
for name in grid.decoders:
    rows = [row for row in on_dask.summary() if row.setting["decoder"] == name]
    x = [row.setting["compression"] for row in rows]
    panel.plot(x, [row.interval.mean for row in rows], label=name, **decoder_style(name))
panel.set_xticks([2, 5, 10, 20], ["2", "5", "10", "20"])
panel.set(yscale="log", xlabel="compression r = d/m", ylabel="‖μ̂−μ‖² / ‖μ‖²")
panel.legend()
plt.show()
