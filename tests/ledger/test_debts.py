"""Who owes whom: what both have signed, what one claims, what has been paid."""

from hypothesis import given
from hypothesis import strategies as st

from ledger.bodies import Statement
from ledger.debts import Debt, debts_of, lines_of
from ledger.entry import Entry
from ledger.fold import State
from protocol.signing import Signer
from protocol.units import Digest, Micros
from tests.make_evidence import changed, feed
from tests.make_ledger import OWNER, RENTER, STRANGER, Feed, at, statement


class Books:
    """An owner and a renter that write halves; all of them folded."""

    def __init__(self) -> None:
        self.owner, self.renter = feed(OWNER), feed(RENTER)
        self.state = State()

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
    for money, (amount, paid) in sums.items():
        lines = [line for line in lines_of(books.state, OWNER.public) if line.money == money]
        debt = books.debt(money=money)
        assert sum(line.amount_micro for line in lines) == amount == debt.stated_micro
        assert sum(line.paid_micro for line in lines) == paid == debt.paid_micro
