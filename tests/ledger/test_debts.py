"""Who owes whom: what both have signed, what one claims, what has been paid."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ledger.bodies import Statement
from ledger.debts import Debt, debts_of, lines_of
from ledger.entry import Entry
from ledger.fold import State
from protocol.signing import Signer
from protocol.units import Digest, Micros
from tests.make_evidence import changed, feed, successor
from tests.make_ledger import OWNER, RENTER, STRANGER, Feed, at, statement


class Books:
    """An owner and a renter that write halves; all of them folded."""

    def __init__(self) -> None:
        self.owner, self.renter = feed(OWNER), feed(RENTER)
        self.state = State()
        self.state.apply(Feed(OWNER).open())

    def write(self, by: Feed, body: Statement) -> Entry:
        entry = by.add(body)
        self.state.apply(entry)
        return entry

    def owe(self, ctr: int, amount: int, *, paid: int | None = None, money: str = "USD") -> Entry:
        body = statement(RENTER, ctr=ctr, used=amount, money=money)
        if paid is not None:
            body = changed(body, paid_micro=Micros(paid))
        return self.write(self.owner, body)

    def answer(self, owed: Entry, ctr: int, amount: int, *, money: str = "USD") -> Entry:
        body = statement(OWNER, ctr=ctr, used=amount, money=money)
        return self.write(self.renter, changed(body, half=owed.id))

    def debt(self, of: Signer = OWNER, money: str = "USD") -> Debt:
        [found] = [each for each in debts_of(self.state, of.public) if each.money == money]
        return found


def test_what_both_have_signed_is_due_and_the_rest_is_claimed() -> None:
    books = Books()
    books.answer(books.owe(1, 50), 1, 50)
    books.owe(2, 80)
    debt = books.debt()
    assert debt == books.debt(RENTER)
    assert (debt.agreed_micro, debt.claimed_micro, debt.due_micro) == (50, 30, 50)
    assert debts_of(books.state, STRANGER.public) == []


def test_what_is_stated_and_not_paid_is_owed_whether_or_not_it_was_answered() -> None:
    books = Books()
    books.answer(books.owe(1, 50), 1, 50)
    books.owe(2, 80, paid=30)
    assert books.debt().owed_micro == 50
    books.owe(3, 80, paid=90)
    assert books.debt().owed_micro == 0


def test_a_payment_lowers_what_is_due_and_tells_since_when_the_rest_is() -> None:
    books = Books()
    books.answer(books.owe(1, 50), 1, 50)
    books.owner.ts = books.renter.ts = 7
    books.answer(books.owe(2, 80), 2, 80)
    assert books.debt().since_ms == at(0)
    books.owe(3, 80, paid=50)
    assert (books.debt().due_micro, books.debt().since_ms) == (30, at(7))
    books.owe(4, 80, paid=80)
    assert (books.debt().due_micro, books.debt().since_ms) == (0, None)
    books.owe(5, 80, paid=90)
    assert books.debt().due_micro == 0


def test_money_of_two_kinds_has_two_accounts() -> None:
    books = Books()
    books.answer(books.owe(1, 50), 1, 50)
    books.answer(books.owe(1, 9, money="EUR"), 1, 9, money="EUR")
    assert (books.debt().due_micro, books.debt(money="EUR").due_micro) == (50, 9)


def test_assets_count_below_a_fork_and_liabilities_on_every_branch() -> None:
    """The owner's claims are its asset; that it was paid, and a renter's debt, are not."""
    books = Books()
    books.answer(books.owe(1, 50), 1, 50)
    late = books.owe(2, 80, paid=40)
    books.answer(late, 2, 80)
    books.state.fork(RENTER.public, 2)
    assert books.debt().due_micro == 40
    books.state.fork(OWNER.public, 2)
    debt = books.debt()
    assert (debt.agreed_micro, debt.paid_micro, debt.due_micro) == (50, 40, 10)


def test_lines_say_what_each_half_added() -> None:
    books = Books()
    first = changed(statement(RENTER, ctr=1, used=50), lease=Digest(b"l" * 32))
    books.answer(books.write(books.owner, first), 1, 50)
    books.owner.ts = 5
    books.owe(2, 50, paid=20)
    one, two = lines_of(books.state, OWNER.public)
    assert (one.lease, one.amount_micro, one.paid_micro, one.is_agreed) == (b"l" * 32, 50, 0, True)
    assert (two.lease, two.amount_micro, two.paid_micro, two.is_agreed) == (None, 0, 20, False)
    assert lines_of(books.state, RENTER.public) == [one, two]


def check_adds_up(state: State) -> None:
    """For both sides, of each account: its lines make what is told of it."""
    for side in (OWNER.public, RENTER.public):
        lines = lines_of(state, side)
        told = {(line.owner, line.renter, line.money): None for line in lines}
        debts = debts_of(state, side)
        assert told.keys() <= {(each.owner, each.renter, each.money) for each in debts}
        for debt in debts:
            account = (debt.owner, debt.renter, debt.money)
            mine = [each for each in lines if (each.owner, each.renter, each.money) == account]
            agreed = [each for each in mine if each.is_agreed]
            claimed = [each for each in mine if not each.is_agreed]
            assert sum(each.amount_micro for each in agreed) == debt.agreed_micro
            assert sum(each.amount_micro for each in claimed) == debt.claimed_micro
            assert sum(each.used_ms for each in agreed) == debt.used_ms
            assert sum(each.paid_micro for each in mine) == debt.paid_micro
            assert all(min(each.used_ms, each.amount_micro, each.paid_micro) >= 0 for each in mine)


@given(
    st.lists(
        st.tuples(st.integers(0, 90), st.integers(0, 90), st.booleans(), st.sampled_from("AB")),
        max_size=12,
    )
)
def test_the_lines_add_up_to_the_ledger(steps: list[tuple[int, int, bool, str]]) -> None:
    books = Books()
    sums: dict[str, tuple[int, int]] = {}
    for ctr, (amount, paid, is_answered, letter) in enumerate(steps):
        money = letter * 3
        before = sums.get(money, (0, 0))
        sums[money] = (before[0] + amount, before[1] + paid)
        owed = books.owe(ctr, sums[money][0], paid=sums[money][1], money=money)
        if is_answered:
            books.answer(owed, ctr, sums[money][0], money=money)
    check_adds_up(books.state)
    lines = lines_of(books.state, OWNER.public)
    assert len(lines) == len(steps)  # of an honest owner, one of each half
    for money, (amount, paid) in sums.items():
        mine = [line for line in lines if line.money == money]
        debt = books.debt(money=money)
        assert sum(line.amount_micro for line in mine) == amount == debt.stated_micro
        assert sum(line.paid_micro for line in mine) == paid == debt.paid_micro


WILD = st.fixed_dictionaries(
    {
        "branch": st.integers(0, 1),
        "ctr": st.integers(0, 9),
        "used": st.integers(0, 90),
        "amount": st.integers(0, 90),
        "paid": st.integers(0, 90),
        "answer": st.sampled_from([None, None, 0, 1]),
        "money": st.sampled_from(["AAA", "BBB"]),
    }
)
"""A half by which its owner may contradict itself, on either branch; answered there or not."""


@given(
    st.lists(WILD, max_size=14),
    st.integers(1, 6),
    st.integers(1, 6),
    st.one_of(st.none(), st.integers(0, 8)),
)
def test_the_lines_add_up_whatever_is_forked_and_wherever_a_feed_was_ended(
    steps: list[dict[str, Any]], forks: int, renters: int, ended: int | None
) -> None:
    """`forks` and `renters` are the places where the two part; `ended` that of a SUCCESSOR."""
    state = State()
    owners, answers = [feed(OWNER)], [feed(RENTER)]
    for step in steps:
        for feeds, at_seq in ((owners, forks), (answers, renters)):
            if len(feeds) == 1 and feeds[0].last is not None and feeds[0].last.seq + 1 >= at_seq:
                feeds.append(feeds[0].branch())
        branch = step["branch"] % len(owners)
        body = changed(
            statement(RENTER, ctr=step["ctr"], used=step["used"], money=step["money"]),
            amount_micro=Micros(step["amount"]),
            paid_micro=Micros(step["paid"]),
        )
        owed = owners[branch].add(body)
        state.apply(owed)
        if branch:
            state.fork(OWNER.public, forks)
        if step["answer"] is not None:
            by = answers[step["answer"] % len(answers)]
            state.apply(by.add(changed(body, peer=OWNER.public, half=owed.id)))
            if by is not answers[0]:
                state.fork(RENTER.public, renters)
    if ended is not None:
        state.apply(feed(STRANGER).add(successor(OWNER, STRANGER, ended=ended)))
    check_adds_up(state)


def test_a_payment_told_beyond_a_fork_has_a_line_of_its_own() -> None:
    books = Books()
    books.answer(books.owe(1, 50), 1, 50)
    books.owe(2, 80, paid=40)
    books.state.fork(OWNER.public, 2)
    one, two = lines_of(books.state, RENTER.public)
    assert (one.amount_micro, one.paid_micro, one.is_agreed) == (50, 0, True)
    assert (two.amount_micro, two.used_ms, two.paid_micro, two.lease) == (0, 0, 40, None)
    check_adds_up(books.state)


def test_a_payment_told_after_the_end_of_a_feed_has_a_line_of_its_own() -> None:
    books = Books()
    books.answer(books.owe(1, 50), 1, 50)
    books.owe(2, 50, paid=40)
    books.state.apply(feed(STRANGER).add(successor(OWNER, STRANGER, ended=1)))
    [line] = lines_of(books.state, OWNER.public)
    assert (line.amount_micro, line.paid_micro) == (0, 40)
    assert (books.debt().agreed_micro, books.debt().paid_micro) == (0, 40)
    check_adds_up(books.state)


def test_who_answers_a_half_agrees_to_those_before_it() -> None:
    books = Books()
    books.owe(1, 50)
    books.answer(books.owe(2, 80), 2, 80)
    books.owe(3, 85)
    lines = lines_of(books.state, OWNER.public)
    assert [(line.amount_micro, line.is_agreed) for line in lines] == [
        (50, True), (30, True), (5, False),
    ]  # fmt: skip
    check_adds_up(books.state)


def test_of_a_half_that_is_agreed_in_part_both_parts_are_told() -> None:
    """An owner that takes back what it has stated, and has the lower sum signed."""
    books = Books()
    high = books.owe(1, 80, paid=5)
    books.answer(books.owe(2, 50, paid=5), 2, 50)
    lines = lines_of(books.state, OWNER.public)
    assert [(line.half, line.amount_micro, line.is_agreed) for line in lines[:2]] == [
        (high.id, 50, True), (high.id, 30, False),
    ]  # fmt: skip
    check_adds_up(books.state)
