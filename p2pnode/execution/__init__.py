"""Runs jobs: GPUs, engines, one worker for each lease."""
