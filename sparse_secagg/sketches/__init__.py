"""The sketches themselves, x ↦ S x, as a client computes them: NumPy and kernels, nothing else.

``encoders`` are scikit-learn transformers around them, whose operators servers also invert.
"""
