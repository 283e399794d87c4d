"""Clients' updates on disk, round by round."""
