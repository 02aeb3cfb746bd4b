"""The book answers from what it has put together once, and never with what is no longer so."""

from p2pnode.matching.book import ARRIVALS_KEPT_MAX, Book
from protocol.certificate import read_certificate
from protocol.offers import root_of
from protocol.units import Millis
from protocol.wire import pack
from tests import make

LIFE_MS = make.GENESIS.bounds.advert_life_ms


def put(book: Book, number: int, **changes: int) -> None:
    """An advert of its own group, issued when it is taken."""
    now = Millis(make.NOW + changes.pop("after", 0))
    advert = make.advert(
        group=number.to_bytes(16, "big"),
        issued_ms=now,
        not_after_ms=Millis(now + LIFE_MS),
        **changes,
    )
    book.take(pack(advert, signer=make.signer(2), net=make.NET), now=now)


def check_whole(book: Book) -> None:
    heads = book.heads()
    assert list(heads) == sorted(heads)
    assert len(heads) == len(book)
    assert book.root() == root_of(list(heads))
    if heads:
        assert book.heads(after=heads[0][0]) == heads[1:]
        assert book.heads(after=heads[-1][0]) == ()


def test_heads_and_root_follow_each_advert_that_comes_and_goes() -> None:
    book = Book(make.GENESIS, read=read_certificate)
    check_whole(book)
    roots = {book.root()}
    for number in range(3):
        put(book, number, seq=1, after=number * 10)
        check_whole(book)
        roots.add(book.root())
    put(book, 0, seq=2, after=40)
    check_whole(book)
    roots.add(book.root())
    assert book.expire(Millis(make.NOW + LIFE_MS + 10)) == 0
    assert book.expire(Millis(make.NOW + LIFE_MS + 11)) == 1
    check_whole(book)
    roots.add(book.root())
    assert book.expire(Millis(make.NOW + LIFE_MS + 41)) == 2
    check_whole(book)
    assert len(book) == 0
    assert len(roots) == 6


def test_arrivals_tell_the_newest_in_their_order() -> None:
    book = Book(make.GENESIS, read=read_certificate)
    for seq in range(1, ARRIVALS_KEPT_MAX + 3):
        put(book, 1, seq=seq)
    arrivals = book.arrivals()
    assert len(arrivals) == ARRIVALS_KEPT_MAX
    assert [arrival.head[2] for arrival in arrivals[:2]] == [3, 4]
    assert arrivals[-1].taken_ms == make.NOW
