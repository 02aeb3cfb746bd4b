"""What evidence says, as a document; needs neither a node nor its libraries."""

from collections.abc import Iterator

from ledger.entry import Header, read_draft, read_entry
from ledger.evidence import check
from ledger.limits import EVIDENCE_BYTES_MAX
from p2pnode.api.ledger_documents import EvidenceCheckDocument, PartDocument, ProofDocument
from p2pnode.known_network import NAME_NETWORK, KnownNetwork
from p2pnode.words import kind_words, offence_words
from protocol.codec import decode, decode_plain
from protocol.errors import LocalFault, PeerFault
from protocol.signing import digest
from protocol.units import NetId
from protocol.wire import Envelope


def verify_proof(raw: bytes, known: KnownNetwork | None) -> EvidenceCheckDocument:
    """What this proof proves in that network. Raises LocalFault if it proves nothing there."""
    if known is None:
        raise LocalFault("A proof does not say of which network it is.", NAME_NETWORK)
    try:
        proof = proof_document(raw, known.net)
    except PeerFault as fault:
        raise LocalFault(
            f"This proves nothing in network {known.net.hex()}: {fault}.",
            "see whether it is of another network, or take the file anew",
        ) from fault
    return EvidenceCheckDocument(network=known.document(), proof=proof)


def proof_document(
    raw: bytes, net: NetId, *, peer: str | None = None, account: str | None = None
) -> ProofDocument:
    """What this evidence proves, and by which entries. Raises PeerFault as `evidence.check`."""
    offence = check(raw, net)
    return ProofDocument(
        id=digest("sync-proof", raw).hex(),
        rule=offence.rule,
        offence=offence_words(offence.rule),
        offender=offence.offender.hex(),
        peer=peer,
        account=account,
        fork=offence.seq,
        shown_by=tuple(_parts(decode_plain(raw, size_max=EVIDENCE_BYTES_MAX), net)),
        bytes=len(raw),
        hex=raw.hex(),
    )


def _parts(value: object, net: NetId) -> Iterator[PartDocument]:
    """All that is signed in a proof, of whatever rule: each part is found by its form."""
    if isinstance(value, list):
        for item in value:
            yield from _parts(item, net)
    elif isinstance(value, bytes):
        header = _header(value, net)
        if header is not None:
            yield PartDocument(
                feed=header.feed.hex(),
                seq=header.seq,
                ts_ms=header.ts_ms,
                what=kind_words(header.kind),
            )
        elif (envelope := _envelope(value)) is not None:
            yield PartDocument(
                feed=envelope.k.hex(), seq=None, ts_ms=None, what=f"message: {envelope.t}"
            )


def _header(raw: bytes, net: NetId) -> Header | None:
    """Of an entry, or a header alone."""
    try:
        return read_entry(raw, net).header
    except PeerFault:
        pass
    try:
        return read_draft(raw, b"", net).header
    except PeerFault:
        return None


def _envelope(raw: bytes) -> Envelope | None:
    try:
        return decode(raw, Envelope, size_max=EVIDENCE_BYTES_MAX)
    except PeerFault:
        return None
