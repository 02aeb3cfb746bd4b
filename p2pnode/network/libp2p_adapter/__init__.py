"""The ports of `p2pnode.network.transport` on py-libp2p; the only importer of libp2p."""
