"""The renter's jobs: from submission over leases, also several in turn, to output and receipt."""
