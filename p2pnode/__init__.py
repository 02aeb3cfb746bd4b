"""The node: a trio program that rents out, or rents, GPUs peer to peer."""
