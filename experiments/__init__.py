"""What people run: datasets, training, recordings, sweeps, comparisons, plots, the CLI."""
