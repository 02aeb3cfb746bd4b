"""The node's HTTP API over its unix socket; the command line's only way in."""
