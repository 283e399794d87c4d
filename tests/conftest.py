"""Settings of the whole suite."""

from hypothesis import settings

# The first example of a property may compile a kernel, and machines differ: nothing here is timed.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
