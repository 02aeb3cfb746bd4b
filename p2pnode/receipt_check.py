"""What a receipt says, as a document; needs neither a node nor its libraries."""

from collections.abc import Iterator

from msgspec import UNSET

from ledger.receipt import Proven, check_receipt, net_named_by
from p2pnode.api.job_documents import OutcomeDocument
from p2pnode.api.ledger_documents import (
    DeliveredDocument,
    ReceiptVerifyDocument,
    SideDocument,
    StatementDocument,
)
from p2pnode.known_network import KnownNetwork
from p2pnode.quantities import format_money, format_percent
from p2pnode.words import instant_words
from protocol.errors import LocalFault, PeerFault
from protocol.lease import remedy_of
from protocol.promise import delivered
from protocol.tick import Outcome
from protocol.units import Micros


def verify_receipt(raw: bytes, known: KnownNetwork | None) -> ReceiptVerifyDocument:
    """What this receipt proves in that network, or in the one that it names.

    Raises LocalFault if it does not hold.
    """
    try:
        named = net_named_by(raw)
        if known is not None and named != known.net:
            raise LocalFault(
                f"This is a receipt of network {named.hex()}, not of {known.net.hex()}.",
                f"--network {named.hex()}, if you deal with that one",
            )
        network = known or KnownNetwork(net=named, genesis=None, by="receipt")
        proven = check_receipt(raw, network.net)
    except PeerFault as fault:
        raise LocalFault(*_refusal(fault)) from fault
    return _receipt_document(proven, network)


def _refusal(fault: PeerFault) -> tuple[str, str]:
    if fault.rule == "receipt.version":
        return "This receipt is of a version that is not known here.", "a newer p2pnode"
    return (
        f"This receipt does not hold: {fault}.",
        "take the file anew from whoever made it; if it is the same, do not trust it",
    )


def _receipt_document(proven: Proven, network: KnownNetwork) -> ReceiptVerifyDocument:
    request = proven.request
    return ReceiptVerifyDocument(
        network=network.document(),
        lease=proven.lease.hex(),
        owner=SideDocument(feed=proven.owner.hex(), account=proven.accounts[0].hex()),
        renter=SideDocument(feed=proven.renter.hex(), account=proven.accounts[1].hex()),
        units=len(request.units),
        start_ms=request.start_ms,
        end_ms=request.end_ms,
        micro_per_gpu_hour=request.micro_per_gpu_hour,
        money=request.money,
        used_ms=proven.used_ms,
        amount_micro=proven.amount_micro,
        is_metered=proven.is_metered,
        is_settled=proven.is_settled,
        outcome=outcome_document(proven.outcome),
        delivered=_delivered(proven),
        simulated=tuple(_simulated(proven, network)),
        statements=tuple(_statements(proven)),
    )


def _simulated(proven: Proven, network: KnownNetwork) -> Iterator[str]:
    is_test = proven.request.money == "TEST"
    if network.genesis is not None:
        is_test = network.genesis.kind == "test"
    if proven.outcome.gpu == "simulated":
        yield "gpu=sim"
    if is_test:
        yield "net=test"
    if proven.outcome.isolation == "process":
        yield "engine=process"


def _statements(proven: Proven) -> Iterator[StatementDocument]:
    request = proven.request
    price = format_money(request.micro_per_gpu_hour, request.money)
    yield StatementDocument(
        class_="proved",
        by="both",
        text=f"the owner leased {len(request.units)} GPU to the renter, tier {request.tier}, "
        f"from {instant_words(request.start_ms)} to {instant_words(request.end_ms)}, "
        f"at {price}/gpu-h",
    )
    yield StatementDocument(class_="proved", by="renter", text="the renter accepted the lease")
    if request.witnesses is not UNSET:
        yield _witnessed(proven)
    if proven.is_metered:
        owed = format_money(Micros(proven.amount_micro), request.money)
        yield StatementDocument(
            class_="proved",
            by="both",
            text=f"the renter owes the owner {owed} for {proven.used_ms} GPU-ms of this lease",
        )
    else:
        yield StatementDocument(
            class_="missing",
            by="nobody",
            text="nothing is owed by this receipt: no tick of the meter has both signatures",
        )
    if proven.is_settled:
        yield StatementDocument(
            class_="proved", by="both", text="both have put it into their accounts"
        )
    else:
        yield StatementDocument(
            class_="missing", by="nobody", text="not settled: a half of the account is missing"
        )
    yield from _kept(proven)
    yield from _claims(proven.outcome)


def _delivered(proven: Proven) -> DeliveredDocument:
    request = proven.request
    found = delivered(request, proven.outcome, proven.used_ms)
    return DeliveredDocument(
        promised_start_ms=request.start_ms,
        start_delay_ms=found.start_delay_ms,
        availability_ppm=found.availability_ppm,
        remedy_promised_micro=remedy_of(request),
        remedy_due_micro=found.remedy_micro,
    )


def _kept(proven: Proven) -> Iterator[StatementDocument]:
    """What was promised, and how much of it was kept."""
    request, kept = proven.request, _delivered(proven)
    if kept.remedy_promised_micro:
        sum_words = format_money(Micros(kept.remedy_promised_micro), request.money)
        share = 0 if request.remedy_ppm is UNSET else request.remedy_ppm
        part = f"{sum_words}, {format_percent(share)} of the whole price,"
        text = f"the owner lets off {part} if its host fails the job"
        yield StatementDocument(class_="proved", by="both", text=text)
    late = "it did not begin"
    if kept.start_delay_ms is not None:
        late = f"it began {kept.start_delay_ms} ms after the promised time"
    percent = f"{kept.availability_ppm // 10_000}.{kept.availability_ppm // 100 % 100:02}"
    yield StatementDocument(
        class_="claimed", by="owner", text=f"{late}, and ran for {percent} % of the leased time"
    )
    if kept.remedy_due_micro:
        sum_words = format_money(Micros(kept.remedy_due_micro), request.money)
        text = f"its host failed the job, so that it lets off {sum_words}"
        yield StatementDocument(class_="proved", by="owner", text=text)


def _witnessed(proven: Proven) -> StatementDocument:
    """That they have signed is proved; that they signed nothing else for this turn, is theirs."""
    request = proven.request
    assert request.witnesses is not UNSET
    text = (
        f"{len(proven.witnesses)} of {len(request.witnesses)} witnesses that the renter had named "
        f"cosigned the lease, and {request.quorum} were asked for"
    )
    return StatementDocument(
        class_="proved" if proven.is_witnessed else "missing",
        by="witnesses" if proven.is_witnessed else "nobody",
        text=text,
    )


def _claims(outcome: Outcome) -> Iterator[StatementDocument]:
    """What only the owner says."""
    how: str = outcome.cause
    if outcome.exit_code is not UNSET:
        how += f" {outcome.exit_code}"
    if outcome.signal is not UNSET:
        how += f" {outcome.signal}"
    if outcome.detail is not UNSET:
        how += f" ({outcome.detail})"
    texts = [f"the job ended by {how} at {instant_words(outcome.ended_ms)}"]
    if outcome.output is not UNSET:
        texts.append(
            f"its output has {outcome.output.bytes} bytes and sha256 {outcome.output.digest.hex()}"
        )
    texts.append(
        f"it ran under {outcome.engine}, isolation {outcome.isolation}: {outcome.enforced}"
    )
    if outcome.vram_peak_mib is not UNSET:
        texts.append(f"it was seen to hold {outcome.vram_peak_mib} MiB of a GPU's memory at most")
    simulated = "the GPU is simulated: nothing ran on a real one"
    texts.append(simulated if outcome.gpu == "simulated" else "it had a GPU that NVML showed")
    for text in texts:
        yield StatementDocument(class_="claimed", by="owner", text=text)


def outcome_document(outcome: Outcome) -> OutcomeDocument:
    """How a job ended, as its owner signed it."""
    output = None if outcome.output is UNSET else outcome.output
    return OutcomeDocument(
        cause=outcome.cause,
        exit_code=None if outcome.exit_code is UNSET else outcome.exit_code,
        signal=None if outcome.signal is UNSET else outcome.signal,
        started_ms=None if outcome.started_ms is UNSET else outcome.started_ms,
        ended_ms=outcome.ended_ms,
        output_sha256=None if output is None else output.digest.hex(),
        output_bytes=0 if output is None else output.bytes,
        engine=outcome.engine,
        isolation=outcome.isolation,
        enforced=outcome.enforced,
        detail="" if outcome.detail is UNSET else outcome.detail,
        vram_peak_mib=None if outcome.vram_peak_mib is UNSET else outcome.vram_peak_mib,
        gpu=outcome.gpu,
    )
