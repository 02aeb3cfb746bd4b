"""Rules of an identity: keys are made once and kept close, the certificate is renewed in time."""

import dataclasses
import logging
import os
from pathlib import Path

import pytest
from nacl.public import PrivateKey

from p2pnode.home import Home, find_home, make_folders
from p2pnode.identity import (
    BACKDATING_MS,
    CERTIFICATE_LIFE_MS,
    RENEWAL_MS,
    Identity,
    create_identity,
    is_feed_new,
    load_identity,
    note_feed_begun,
)
from protocol.certificate import check_in_force, read_certificate
from protocol.errors import LocalFault
from protocol.signing import Signer, peer_id_of
from protocol.units import Millis, NetId

NET = NetId(b"n" * 32)
OTHER_NET = NetId(b"o" * 32)
NOW = Millis(1_800_000_000_000)
KEYS = ("root.key", "feed.key", "peer.key", "x25519.key", "next-feed.key")
OFFLINE_CURE = "put root.key into"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = find_home(tmp_path)
    make_folders(made)
    return made


def create(home: Home, *, net: NetId = NET, now: int = NOW) -> Identity:
    return create_identity(home, net, Millis(now), os.urandom)


def load(home: Home, *, net: NetId = NET, now: int = NOW) -> Identity:
    return load_identity(home, net, Millis(now))


def take_root_away(home: Home) -> None:
    (home.keys / "root.key").unlink()


def files_of(home: Home) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in home.keys.iterdir()}


def test_a_new_identity_has_five_different_keys_closed_to_others(home: Home) -> None:
    create(home)
    files = files_of(home)
    assert sorted(files) == sorted(KEYS)
    assert len(set(files.values())) == 5
    assert all((home.keys / name).stat().st_mode & 0o777 == 0o600 for name in KEYS)


def test_a_new_certificate_is_of_these_keys_for_one_year(home: Home) -> None:
    identity = create(home)
    certificate = read_certificate(identity.certificate_raw, NET)
    check_in_force(certificate, NOW)
    assert certificate == identity.certificate
    assert identity.root
    assert certificate.root == identity.root.public
    assert certificate.feed == identity.feed.public
    assert certificate.peer_id == peer_id_of(Signer(identity.peer_seed).public)
    assert certificate.x25519 == bytes(PrivateKey(identity.x25519_secret).public_key)
    assert certificate.not_before_ms == NOW - BACKDATING_MS
    assert certificate.not_after_ms == NOW + CERTIFICATE_LIFE_MS


def test_an_identity_may_begin_in_the_first_hour_of_time(home: Home) -> None:
    assert create(home, now=1_000).certificate.not_before_ms == 1


def test_an_identity_is_loaded_as_it_was_made(home: Home) -> None:
    made = create(home)
    loaded = load(home)
    assert loaded.certificate_raw == made.certificate_raw == home.certificate.read_bytes()
    assert loaded.peer_seed == made.peer_seed
    assert loaded.x25519_secret == made.x25519_secret


def test_creating_again_changes_nothing(home: Home) -> None:
    raw, files = create(home).certificate_raw, files_of(home)
    assert create(home).certificate_raw == raw
    assert files_of(home) == files


def test_creating_adds_only_what_is_missing(home: Home) -> None:
    before = create(home).certificate
    files = files_of(home)
    (home.keys / "feed.key").unlink()
    after = create(home, now=NOW + 1).certificate
    assert {n: b for n, b in files_of(home).items() if n != "feed.key"} == {
        n: b for n, b in files.items() if n != "feed.key"
    }
    assert after.feed != before.feed
    assert after.n > before.n


def test_creating_makes_no_new_root_while_the_root_is_kept_elsewhere(home: Home) -> None:
    create(home)
    take_root_away(home)
    assert create(home).root is None
    assert not (home.keys / "root.key").exists()


def test_creating_makes_no_key_that_an_absent_root_could_not_certify(home: Home) -> None:
    create(home)
    take_root_away(home)
    (home.keys / "feed.key").unlink()
    with pytest.raises(LocalFault, match=r"feed\.key is missing"):
        create(home)
    assert sorted(files_of(home)) == ["next-feed.key", "peer.key", "x25519.key"]


def test_no_secret_shows_in_a_text(home: Home) -> None:
    identity = create(home)
    for name, secret in files_of(home).items():
        assert secret.hex() not in repr(identity), name
        assert repr(secret) not in repr(identity), name
    assert dataclasses.is_dataclass(identity)


def test_a_certificate_with_30_days_left_is_kept(home: Home) -> None:
    made = create(home)
    now = made.certificate.not_after_ms - RENEWAL_MS
    assert load(home, now=now).certificate_raw == made.certificate_raw


@pytest.mark.parametrize("left_ms", [RENEWAL_MS - 1, 0, -1])
def test_a_certificate_near_or_past_its_end_is_followed_by_the_next(
    home: Home, left_ms: int
) -> None:
    first = create(home).certificate
    now = first.not_after_ms - left_ms
    second = load(home, now=now)
    assert second.certificate.n == first.n + 1
    assert second.certificate.not_after_ms == now + CERTIFICATE_LIFE_MS
    assert home.certificate.read_bytes() == second.certificate_raw


def test_a_certificate_from_a_clock_that_was_ahead_is_followed_by_the_next(home: Home) -> None:
    first = create(home, now=NOW + 2 * BACKDATING_MS).certificate
    second = load(home).certificate
    check_in_force(second, NOW)
    assert second.n == first.n + 1


def test_a_lost_certificate_is_followed_by_one_that_peers_prefer(home: Home) -> None:
    create(home)
    first = load(home, now=NOW + CERTIFICATE_LIFE_MS).certificate
    home.certificate.unlink()
    second = load(home, now=NOW + CERTIFICATE_LIFE_MS + 1).certificate
    assert second.n > first.n


@pytest.mark.parametrize("raw", [b"", b"garbage"])
def test_a_damaged_certificate_is_signed_anew(home: Home, raw: bytes) -> None:
    create(home)
    home.certificate.write_bytes(raw)
    assert read_certificate(load(home).certificate_raw, NET).net == NET


def test_a_certificate_for_another_network_is_signed_anew(home: Home) -> None:
    create(home, net=OTHER_NET)
    assert load(home).certificate.net == NET


@pytest.mark.parametrize("name", KEYS[1:4])
def test_a_certificate_for_other_keys_is_signed_anew(home: Home, name: str) -> None:
    before = create(home).certificate_raw
    (home.keys / name).write_bytes(os.urandom(32))
    assert load(home).certificate_raw != before


def test_the_root_key_of_another_account_certifies_nothing(home: Home) -> None:
    certificate = create(home).certificate_raw
    (home.keys / "root.key").write_bytes(os.urandom(32))
    with pytest.raises(LocalFault, match="not that of this node's account"):
        load(home)
    assert home.certificate.read_bytes() == certificate


def test_without_its_root_key_a_node_runs_while_its_certificate_holds(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    made = create(home)
    take_root_away(home)
    with caplog.at_level(logging.WARNING):
        assert load(home).root is None
        assert not caplog.messages
        loaded = load(home, now=made.certificate.not_after_ms)
    assert loaded.certificate_raw == made.certificate_raw
    assert caplog.messages == ["certificate ends soon"]


def test_without_its_root_key_an_expired_certificate_is_refused(home: Home) -> None:
    made = create(home)
    take_root_away(home)
    with pytest.raises(LocalFault, match="has expired") as caught:
        load(home, now=made.certificate.not_after_ms + 1)
    assert caught.value.cure.startswith(OFFLINE_CURE)


def test_without_its_root_key_a_node_cannot_change_network(home: Home) -> None:
    create(home)
    take_root_away(home)
    with pytest.raises(LocalFault, match="for another network") as caught:
        load(home, net=OTHER_NET)
    assert caught.value.cure.startswith(OFFLINE_CURE)


@pytest.mark.parametrize("raw", [None, b"garbage"])
def test_without_its_root_key_a_node_needs_its_certificate(home: Home, raw: bytes | None) -> None:
    create(home)
    take_root_away(home)
    home.certificate.unlink()
    if raw:
        home.certificate.write_bytes(raw)
    with pytest.raises(LocalFault, match=r"is missing|is damaged"):
        load(home)


@pytest.mark.parametrize("name", KEYS[1:])
def test_a_missing_key_is_refused(home: Home, name: str) -> None:
    create(home)
    (home.keys / name).unlink()
    with pytest.raises(LocalFault, match=rf"{name} is missing"):
        load(home)


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_key_of_another_size_is_refused(home: Home, name: str, size: int) -> None:
    create(home)
    (home.keys / name).write_bytes(b"k" * size)
    with pytest.raises(LocalFault, match=rf"{name} does not hold a key"):
        load(home)


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o610])
def test_a_key_open_to_others_is_refused(home: Home, name: str, mode: int) -> None:
    create(home)
    (home.keys / name).chmod(mode)
    with pytest.raises(LocalFault, match=rf"{name} is open to other users") as caught:
        load(home)
    assert caught.value.cure == f"chmod 600 {home.keys / name}"


def test_a_key_that_cannot_be_read_is_refused(home: Home) -> None:
    create(home)
    (home.keys / "feed.key").unlink()
    (home.keys / "feed.key").mkdir()
    with pytest.raises(LocalFault, match=r"cannot read .*feed\.key"):
        load(home)


def test_a_feed_is_new_until_it_is_begun(home: Home) -> None:
    feed = create(home).feed.public
    assert is_feed_new(home, feed)
    assert is_feed_new(home, create(home).feed.public)
    note_feed_begun(home)
    assert not is_feed_new(home, feed)
    assert not is_feed_new(home, create(home).feed.public)
    note_feed_begun(home)


def test_a_feed_whose_key_was_brought_from_elsewhere_is_not_new(home: Home) -> None:
    (home.keys / "feed.key").write_bytes(b"f" * 32)
    (home.keys / "feed.key").chmod(0o600)
    assert not is_feed_new(home, create(home).feed.public)


def test_a_key_that_was_written_over_is_not_new(home: Home) -> None:
    create(home)
    (home.keys / "feed.key").write_bytes(b"f" * 32)
    assert not is_feed_new(home, create(home).feed.public)
