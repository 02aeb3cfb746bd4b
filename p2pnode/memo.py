"""Remembers verified certificates: three signatures are worth not checking at every heartbeat."""

from collections import OrderedDict
from typing import Final

from protocol.certificate import Certificate, ReadCertificate, read_certificate
from protocol.units import NetId

CERTIFICATES_MAX: Final = 16_384
"""As many as there can be adverts; about 1.5 kB each."""


def certificate_memo() -> ReadCertificate:
    """`read_certificate` that verifies the same bytes once; only what is valid is kept."""
    known: OrderedDict[tuple[bytes, NetId], Certificate] = OrderedDict()

    def read(raw: bytes, net: NetId) -> Certificate:
        certificate = known.get((raw, net))
        if certificate is None:
            certificate = known[raw, net] = read_certificate(raw, net)
            while len(known) > CERTIFICATES_MAX:
                known.popitem(last=False)
        return certificate

    return read
