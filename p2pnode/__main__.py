"""`python -m p2pnode` is `p2pnode`."""

from p2pnode.cli import main

main()
