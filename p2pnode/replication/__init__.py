"""Keeps our ledger equal to others."""
