"""What owners learn from the requests that they saw, and how it is told."""

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from p2pnode.cabinet import MemoryCabinet
from p2pnode.cli.why import change_lines, no_work_lines, why_lines
from p2pnode.matching.journal import Journal, Note
from p2pnode.matching.work import GRACE_MS, STALLED_MS, Pulse, cause_of, floor_of
from protocol.auction import Reason
from protocol.units import Digest, Micros, Millis
from tests import make


def note(**changes: object) -> Note:
    journal = Journal(MemoryCabinet())
    bid = make.bid(micro_per_gpu_hour=Micros(350_000))
    journal.bid(make.rfq(), make.RENTER.public, make.NOW, (Digest(bytes(32)), bid))
    (made,) = journal.since(0, Millis(bid.valid_until_ms + 1))
    return replace(made, **changes)


def test_each_end_of_a_request_has_its_cause() -> None:
    ends: list[tuple[Note, str | None]] = [
        (note(), "price"),
        (note(result="won"), None),
        (note(result="open"), None),
        (note(result="expired"), "expired"),
    ]
    reasons: dict[Reason, str] = {
        "SHAPE": "need", "TAKEN": "busy", "BUSY": "busy", "CLOSED": "closed",
        "POLICY": "policy", "PRICE_MOVED": "price", "STALE": "reach",
    }  # fmt: skip
    ends += [(note(result="refused", reason=why), cause) for why, cause in reasons.items()]
    assert [cause_of(each) for each, _ in ends] == [cause for _, cause in ends]


@pytest.mark.parametrize(
    ("rivals", "floor"),
    [
        ([], None),
        ([360_000], None),
        ([350_000], (349_999, 1)),
        ([290_000, 290_000, 300_000], (289_999, 3)),
        ([100_000, 340_000, 340_000], (339_999, 2)),
        ([0, 300_000], (299_999, 1)),
    ],
)
def test_the_floor_that_would_have_won_earns_most_below_the_rivals(
    rivals: list[int], floor: tuple[int, int] | None
) -> None:
    notes = [note(rival_micro=Micros(rival)) for rival in rivals]
    others = [note(), note(result="won", rival_micro=Micros(1_000)), note(money="EUR")]
    assert floor_of([*notes, *others], "TEST") == floor


def test_b18_requests_that_come_and_are_not_evaluated_stall_the_bidder() -> None:
    pulse = Pulse()
    start = make.NOW
    assert pulse.stalled(start) is None
    pulse.came(start)
    assert pulse.stalled(Millis(start + GRACE_MS - 1)) is None
    assert pulse.stalled(Millis(start + GRACE_MS)) is not None
    pulse.evaluated(Millis(start + GRACE_MS))
    assert pulse.stalled(Millis(start + GRACE_MS)) is None
    later = start + STALLED_MS
    for second in range(3):
        pulse.came(Millis(later + second))
    told = pulse.stalled(Millis(later + 2 * GRACE_MS))
    assert told is not None
    assert told.startswith("3 requests")
    assert pulse.stalled(Millis(later + 2 * STALLED_MS)) is None


def why(**changes: object) -> dict[str, object]:
    return {
        "job": "job-8mm1", "state": "matching", "is_matched": False, "waited_ms": 240_000,
        "patience_ms": 1_200_000, "seen": 37, "shut_out": {}, "fits": 0, "bids": 0,
        "refusals": [], "missed": {}, "unseen": "", "pool": "",
        "funnel": [
            {"name": "vram", "asked": "--vram 81920MiB", "failed": {"vram": 21}, "left": 16},
            {"name": "gpus", "asked": "--gpus 1", "failed": {}, "left": 16},
            {"name": "price", "asked": "--max-price 1.50", "failed": {"price": 16}, "left": 0},
        ],
        "changes": [
            {"options": ["--max-price '2.10 USD/gpu-h'"], "matches": 2, "ppm": 400_000},
            {"options": ["--vram 49140MiB"], "matches": 6, "ppm": 400_146},
        ],
        **changes,
    }  # fmt: skip


def test_b20_a_job_without_a_match_has_a_line_for_each_filter_with_counts() -> None:
    lines = why_lines(why())
    assert lines[0] == "job-8mm1 has no match (waited 4m of 20m)"
    assert lines[1].strip() == "37 offers seen"
    assert [line.split()[1:3] for line in lines[2:4]] == [["21", "vram"], ["16", "price"]]
    assert lines[-1].strip() == (
        "smallest change that matches: --max-price '2.10 USD/gpu-h' (2 nodes)"
        " or --vram 49140MiB (6 nodes)"
    )


def test_b20_a_job_that_runs_has_no_funnel() -> None:
    assert why_lines(why(is_matched=True, state="running")) == [
        "job-8mm1 is running: it has had a match"
    ]


def test_several_changes_together_are_said_to_be_together() -> None:
    change = {"options": ["--gpus 1", "--region NL"], "matches": 1, "ppm": 1}
    assert change_lines(why(changes=[change])) == [
        "smallest changes that match, all together: --gpus 1 --region NL (1 node)"
    ]
    assert change_lines(why(changes=[])) == []


def test_what_owners_signed_is_shown_where_offers_fit() -> None:
    refusals = [{"owner": "ab" * 32, "reason": "TAKEN", "detail": "0 of 1 GPUs are free then"}]
    text = "\n".join(why_lines(why(fits=2, refusals=refusals, missed={"taken": 1}, changes=[])))
    assert "1 taken" in text
    assert "signed TAKEN: 0 of 1 GPUs are free then" in text


def test_an_owner_without_work_is_told_causes_a_floor_and_an_alert() -> None:
    document = {
        "since_ms": 0, "until_ms": 86_400_000, "seen": 412, "won": 0,
        "causes": {"price": 231, "need": 140}, "details": {"need": "SHAPE: has 24564 MiB"},
        "ask_micro": 350_000, "money": "USD", "floor_micro": 279_999, "floor_wins": 118,
        "alert": "BIDDER_STALLED", "alert_why": "3 requests came",
    }  # fmt: skip
    text = "\n".join(no_work_lines(document))
    assert "412 requests seen in 1d, 0 won" in text
    assert "140  need     SHAPE: has 24564 MiB" in text
    assert "0.279999 USD/gpu-h would have won 118" in text
    assert "estimate" in text
    assert "BIDDER_STALLED: 3 requests came" in text


def test_a_note_that_was_not_looked_for_rivals_says_so() -> None:
    assert note().rivals is UNSET
