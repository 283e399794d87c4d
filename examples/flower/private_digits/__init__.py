"""Handwritten digits, learnt privately in a Flower app."""
