"""One private round: what it is (spec), what parties agree on (config), how it runs (run).

    clipping → sketching → config → parts → aggregate → run → spec

Each module imports only those before it; adaptive_clip, feedback and diagnostics stand beside.
"""
