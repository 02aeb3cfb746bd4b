"""What another price would have come to: a journal, played again by hand."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from msgspec import UNSET

from p2pnode.api.owner_documents import AskChange
from p2pnode.matching.journal import Note
from p2pnode.matching.replay import Outcome, replay
from p2pnode.matching.strategies import Energy, share_of
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.owner_views import OwnerViews
from p2pnode.status import offered
from protocol.errors import LocalFault
from protocol.units import Micros, Millis, MillisSpan
from tests import make
from tests.make_desk import HOUR
from tests.make_job import make_submission
from tests.make_node import Party, ended

DAY = MillisSpan(24 * HOUR)
ENERGY = Energy(micro_per_kwh=Micros(300_000), watts=400)


def seen(hour: int, **changes: Any) -> Note:
    """A request for one GPU for an hour, lost to nobody knows whom at 0.35."""
    start = Millis(make.NOW + hour * HOUR)
    fields: dict[str, Any] = {
        "seen_ms": start,
        "renter": make.RENTER.public,
        "group": make.GROUP,
        "need": make.need(gpus=1),
        "tier": "silver",
        "start_ms": start,
        "end_ms": Millis(start + HOUR),
        "notice_ms": MillisSpan(0),
        "money": "TEST",
        "result": "lost",
        "ask_micro": Micros(350_000),
        "rivals": 1,
        "rival_micro": Micros(290_000),
        **changes,
    }
    return Note(**fields)


def at(price: int | None, *notes: Note, units: int = 1) -> Outcome:
    return replay(
        notes,
        {make.GROUP: units},
        price_of=None if price is None else partial(share_of, Micros(price)),
        money="TEST",
        until=Millis(10**15),
        span_ms=DAY,
        energy=ENERGY,
    )


def test_a_lower_price_wins_what_a_rival_won_and_earns_by_its_own_price() -> None:
    notes = (seen(0), seen(1, result="won", rival_micro=Micros(400_000)), seen(2))
    now = at(None, *notes)
    assert (now.asked, now.leases, now.gross, now.energy, now.net) == (
        3,
        1,
        350_000,
        120_000,
        230_000,
    )
    cheaper = at(280_000, *notes)
    assert (cheaper.leases, cheaper.gross, cheaper.net) == (3, 840_000, 480_000)
    assert (cheaper.fill_ppm, cheaper.use_ppm) == (1_000_000, 125_000)
    assert at(290_000, *notes).leases == 1, "the rival keeps what it has at the same price"
    assert at(399_999, *notes).leases == 1, "dearer than the bid, cheaper than its rival"
    assert at(400_000, *notes).leases == 0


@pytest.mark.parametrize(
    ("changes", "at_low"),
    [
        ({"result": "refused", "reason": "SHAPE", "ask_micro": UNSET}, 0),
        ({"result": "refused", "reason": "POLICY", "ask_micro": UNSET}, 0),
        ({"result": "refused", "reason": "CLOSED", "ask_micro": UNSET}, 0),
        ({"result": "refused", "reason": "TAKEN", "ask_micro": UNSET}, 1),
        ({"result": "refused", "reason": "PRICE_MOVED", "ask_micro": UNSET}, 1),
        ({"rival_micro": UNSET, "rivals": 0}, 1),
        ({"rival_micro": UNSET, "rivals": UNSET}, 0),
        ({"money": "EUR"}, 0),
        ({"group": bytes(16)}, 0),
        ({"tier": "bronze", "rival_micro": Micros(120_000)}, 1),
        ({"tier": "bronze", "rival_micro": Micros(90_000)}, 0),
        ({"need": make.need(gpus=2)}, 0),
    ],
)
def test_only_what_a_price_decides_is_played_again(changes: dict[str, Any], at_low: int) -> None:
    assert at(200_000, seen(0, **changes)).leases == at_low


def test_a_gpu_is_leased_once_at_a_time() -> None:
    half = Millis(make.NOW + HOUR // 2)
    notes = (seen(0), seen(0, start_ms=half, end_ms=Millis(half + HOUR)), seen(1))
    assert at(100_000, *notes).leases == 2
    assert at(100_000, *notes, units=2).leases == 3
    assert at(100_000, *reversed(notes)).leases == 2


async def test_a_node_plays_its_own_journal_again(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    party = Party(tmp_path, nursery, MemoryHub())
    renter = await party.add(ask=None)
    await party.add(ask=290_000)
    dear = await party.add(ask=350_000)
    await trio.sleep(5)
    job = renter.node.jobs.submit(make_submission(renter.node))
    assert (await ended(renter, job.id)).state == "done"
    views = OwnerViews(dear.node, lambda: offered(dear.node))
    told = views.simulate([280_000, 300_000], 1)
    assert told.seen == 1
    assert [(row.silver_micro, row.leases) for row in told.items] == [
        (None, 0),
        (280_000, 1),
        (300_000, 0),
    ]
    assert told.items[1].gross_micro > 0
    assert told.items[1].energy_micro is None
    views.set_ask(AskChange(micro_per_gpu_hour=200_000, money="TEST"))
    await trio.sleep(2)
    job = renter.node.jobs.submit(make_submission(renter.node))
    assert (await ended(renter, job.id)).state == "done"
    assert len(dear.node.books.leases()) == 1
    with pytest.raises(LocalFault):
        views.simulate([-1], 1)


def test_a_lease_that_goes_on_counts_up_to_now() -> None:
    kept = seen(0, result="won")
    half = Millis((kept.start_ms + kept.end_ms) // 2)
    whole = replay([kept], {kept.group: 1}, price_of=None, money=kept.money,
        span_ms=MillisSpan(10**9), until=kept.end_ms, energy=None)  # fmt: skip
    begun = replay([kept], {kept.group: 1}, price_of=None, money=kept.money,
        span_ms=MillisSpan(10**9), until=half, energy=None)  # fmt: skip
    assert (begun.leases, 2 * begun.used_ms) == (1, whole.used_ms)
