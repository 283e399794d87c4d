"""The kernels in plain NumPy, for clients without numba: one module for each name of ``kernels``.

A function here has the name, the parameters and the results of the compiled one, and writes to the
same arrays. Whatever decides a message is the same bit for bit: hashes, sketches, transforms,
rounding, noise, masks and packed bytes. Square sums may differ in the last bits, since the compiled
ones are taken in whatever order suits the processor. Work is done in pieces, so that little memory
is needed beside the arrays of the caller.
"""
