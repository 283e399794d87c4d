"""Federated training through the private pipeline."""
