"""`python -m testnet …` is `p2pnode testnet …`."""

import sys

from p2pnode.cli import main

sys.argv.insert(1, "testnet")
main()
