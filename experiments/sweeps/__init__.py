"""Sweeps: cells, grids of them, workers that evaluate them and the store that keeps results."""
