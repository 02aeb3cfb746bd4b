"""Measures real networks of processes on this machine against the bars they have to hold."""
