"""Whole networks: real processes on loopback, or a seeded world in one process."""
