"""Consent to the end of a lease that is granted and not taken, so that its units are free again."""

from msgspec import UNSET

from ledger.bodies import Grant, consent_bytes
from ledger.entry import Entry
from protocol.codec import encode
from protocol.lease_stream import Settle
from protocol.signing import Signer
from protocol.units import Millis, NetId


def letting_go(entry: Entry, grant: Grant, *, signer: Signer, net: NetId, now: Millis) -> bytes:
    """What to ask the owner as `lease.settle`: the lease ends now, and nothing is owed."""
    units = tuple((turn.unit, turn.ctr) for turn in grant.units)
    consent = signer.sign("release-consent", net, consent_bytes(entry.id, units, now))
    return encode(Settle(lease=entry.id, at_ms=now, consent=consent, cosign=UNSET))
