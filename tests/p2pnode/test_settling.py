"""A job is billed, its debt listed with the owner's word on how to pay, the payment confirmed."""

from pathlib import Path
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from ledger.debts import lines_of
from p2pnode.api.money_documents import ConfirmOrder
from p2pnode.money_views import money_views
from p2pnode.network.exchange import Refused
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.settling import Settling
from protocol.certificate import read_certificate
from protocol.errors import LocalFault, PeerFault
from protocol.payment import PaymentReference, reference_of
from protocol.signing import Signer
from protocol.units import Millis
from protocol.wire import pack, unpack
from tests import make
from tests.make import FEED, RENTER
from tests.make_job import make_submission
from tests.make_ledger import NET, STRANGER, at, certificate, opened_ledger
from tests.make_node import Party, Started, ended

LISTED_S = 5


class Noon:
    """See WallClock."""

    def now(self) -> Millis:
        return at(0)


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


async def billed(party: Party, payout: str = "IBAN of the owner") -> tuple[Started, Started]:
    """An owner and a renter after one job."""
    built = party.build(ask=300_000)
    built.settling._payout = payout
    owner = await party.start(built)
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    file = renter.node.jobs.submit(make_submission(renter.node))
    assert (await ended(renter, file.id)).state == "done"
    await trio.sleep(60)
    return owner, renter


async def test_a_debt_is_listed_with_the_owners_signed_word_and_confirmed(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner, renter = await billed(party)
    earned, spent = money_views(owner.node), money_views(renter.node)
    [account], [mine] = earned.accounts().items, spent.accounts().items
    assert account.side == "owner"
    swapped = {"own_feed": account.peer_feed, "peer_feed": account.own_feed}
    assert replace(account, side="renter", **swapped) == mine
    assert account.due_micro == account.agreed_micro > 0 == account.claimed_micro
    [debt] = (await spent.debts()).items
    assert (debt.due_micro, debt.payout, debt.why) == (account.due_micro, "IBAN of the owner", "")
    sealed = unpack(bytes.fromhex(debt.signed or ""), owner.node.net, PaymentReference)
    feeds = owner.node.identity.feed.public, renter.node.identity.feed.public
    assert (sealed.signer, sealed.body.renter) == feeds
    assert sealed.body.reference == debt.reference == reference_of(*feeds, debt.money)
    half = account.due_micro // 2
    order = ConfirmOrder(peer=account.peer_feed, amount_micro=half, money=account.money)
    confirmed = earned.confirm(order)
    assert confirmed.account.due_micro == account.due_micro - half
    await trio.sleep(60)
    assert spent.accounts().items[0].paid_micro == half
    with pytest.raises(LocalFault, match="owes"):
        earned.confirm(replace(order, amount_micro=account.due_micro))
    earned.confirm(replace(order, amount_micro=account.due_micro - half))
    await trio.sleep(60)
    assert (await spent.debts()).items == ()


async def test_a_job_after_a_payment_is_billed_like_any(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner, renter = await billed(party)
    views = money_views(owner.node)
    [before] = views.accounts().items
    views.confirm(
        ConfirmOrder(peer=before.peer_feed, amount_micro=before.due_micro, money=before.money)
    )
    file = renter.node.jobs.submit(make_submission(renter.node))
    assert (await ended(renter, file.id)).state == "done"
    await trio.sleep(60)
    [after] = views.accounts().items
    assert after.paid_micro == before.due_micro
    assert after.agreed_micro > before.agreed_micro
    assert after.claimed_micro == 0
    lines = lines_of(owner.node.ports.ledger.state, owner.node.identity.feed.public)
    assert [(line.amount_micro > 0, line.paid_micro > 0) for line in lines] == [
        (True, False), (False, True), (True, False),
    ]  # fmt: skip
    assert sum(line.amount_micro for line in lines) == after.agreed_micro
    for node in (owner.node, renter.node):
        assert node.ports.ledger.offences() == []


async def test_an_owner_that_says_nothing_of_payment_refuses_or_is_away_is_said_to_be_so(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner, renter = await billed(party, payout="")
    [debt] = (await money_views(renter.node).debts()).items
    assert (debt.payout, debt.why) == (None, "the owner has not said how it is paid")

    async def refuse(*_: object) -> bytes:
        raise Refused("peer.busy")

    asks = renter.node.settling._ask_feed
    renter.node.settling._ask_feed = refuse
    [debt] = (await money_views(renter.node).debts()).items
    assert (debt.payout, debt.why) == (None, "the owner refuses: peer.busy")
    renter.node.settling._ask_feed = asks
    owner.scope.cancel()
    await owner.ended.wait()
    [debt] = (await money_views(renter.node).debts()).items
    assert debt.payout is None
    assert debt.why == "the owner cannot be reached: no address leads to the peer"


async def asked(said: PaymentReference, by: Signer) -> PaymentReference:
    """What the renter makes of this answer when it asks the owner, FEED."""

    async def answer(*_: object) -> bytes:
        await trio.lowlevel.checkpoint()
        return pack(said, signer=by, net=NET)

    settling = Settling(
        ledger=opened_ledger(RENTER),
        signer=RENTER,
        payout="",
        ask_feed=answer,
        who_is=lambda _peer: read_certificate(certificate(FEED), NET),
        tell=lambda _feed: None,
        clock=Noon(),
    )
    sealed, _ = await settling.reference(FEED.public, "TEST")
    return sealed.body


async def test_an_owners_word_on_payment_is_taken() -> None:
    assert await asked(make.payment(), FEED) == make.payment()


@pytest.mark.parametrize(
    ("changes", "signer"),
    [
        ({}, STRANGER),
        ({"renter": STRANGER.public}, FEED),
        ({"money": "EUR"}, FEED),
        ({"reference": reference_of(FEED.public, RENTER.public, "EUR")}, FEED),
    ],
)
async def test_a_word_on_payment_for_another_account_is_refused(
    changes: dict[str, Any], signer: Signer
) -> None:
    with pytest.raises(PeerFault) as caught:
        await asked(make.payment(**changes), signer)
    assert caught.value.rule == "payment.answer"
