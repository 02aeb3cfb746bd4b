"""`p2pnode receipt verify`: offline, clear about what it proves, and quick to say no."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from p2pnode.api.schemas import schema_of
from p2pnode.invite import invite_link
from p2pnode.known_network import KnownNetwork
from p2pnode.receipt_check import verify_receipt
from protocol.codec import encode
from protocol.genesis import Bounds, Genesis
from protocol.signing import Signer
from protocol.units import NetId
from protocol.wire import pack
from tests.json_schema import faults
from tests.make_ledger import NET, OWNER, RENTER
from tests.make_receipt import Story, outcome, story, unsettled
from tests.p2pnode.test_cli import run

STORY = story()
WHOLE = encode(STORY.receipt())
FOREIGN = "ab" * 32
GENESIS = Genesis(name="other", kind="test", nonce=bytes(16), bounds=Bounds(), money="TEST")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "receipt"
    path.write_bytes(WHOLE)
    return path


def test_a_receipt_says_who_owes_whom_what_and_how_that_is_known(file: Path) -> None:
    done = run("receipt", "verify", str(file), "--network", NET.hex())
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == f"holds     lease {STORY.granted.id.hex()}"
    assert f"owner     feed {OWNER.public.hex()}" in lines
    assert f"renter    feed {RENTER.public.hex()}" in lines
    proved = [line for line in lines if line.startswith("proved by both ")]
    assert any("the renter owes the owner 0.041667 USD for 600000 GPU-ms" in s for s in proved)
    claimed = [line for line in lines if line.startswith("claimed by the owner ")]
    assert any("the job ended by exit 0" in line for line in claimed)
    assert any("simulated" in line for line in claimed)
    assert lines[-1] == "simulated gpu=sim, engine=process"


def test_the_document_follows_its_schema(file: Path) -> None:
    done = run("receipt", "verify", str(file), "--network", NET.hex(), "--json")
    document = json.loads(done.stdout)
    assert faults(document, schema_of("receipt.verify")) == []
    assert {each["class"] for each in document["statements"]} == {"proved", "claimed"}
    assert document["network"]["known_by"] == "option"


def test_without_a_home_the_network_is_the_one_that_the_receipt_names(file: Path) -> None:
    done = run("receipt", "verify", str(file), home=file.parent / "none")
    assert done.returncode == 0
    assert NET.hex() in done.stdout
    assert "only named by the file itself" in done.stderr


def test_a_home_accepts_receipts_of_its_own_network_alone(file: Path, tmp_path: Path) -> None:
    run("network", "create", "ours", "--test", home=tmp_path)
    done = run("receipt", "verify", str(file), home=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: This is a receipt of network {NET.hex()}, not of ")
    assert (
        run("receipt", "verify", str(file), "--network", NET.hex(), home=tmp_path).returncode == 0
    )


def test_a_network_is_named_by_an_invitation_or_a_file_of_it(file: Path, tmp_path: Path) -> None:
    link = invite_link(encode(GENESIS), ())
    (tmp_path / "genesis.cbor").write_bytes(encode(GENESIS))
    (tmp_path / "invite").write_text(link + "\n")
    for named in (link, str(tmp_path / "genesis.cbor"), str(tmp_path / "invite")):
        done = run("receipt", "verify", str(file), "--network", named)
        assert done.returncode == 1
        assert f"of network {NET.hex()}, not of" in done.stderr
    done = run("receipt", "verify", str(file), "--network", "ours")
    assert done.returncode == 1
    assert "'ours' is no network's id and no file" in done.stderr


@pytest.mark.parametrize(
    ("content", "said", "code"),
    [
        (WHOLE[:-1], "does not hold: codec.form", 1),
        (WHOLE[:3] + b"\x02" + WHOLE[4:], "of a version that is not known here", 1),
        (b"", "is empty", 1),
        (b"\xff" * 400, "does not hold: codec.form", 1),
        (bytes(65_537), "is larger than 65536 bytes", 1),
        (None, "there is no file", 3),
    ],
    ids=["cut", "version", "empty", "noise", "large", "missing"],
)
def test_what_is_no_receipt_is_said_in_one_sentence(
    tmp_path: Path, content: bytes | None, said: str, code: int
) -> None:
    path = tmp_path / "receipt"
    if content is not None:
        path.write_bytes(content)
    done = run("receipt", "verify", str(path))
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_directory_is_no_receipt(tmp_path: Path) -> None:
    done = run("receipt", "verify", str(tmp_path), "--json")
    assert done.returncode == 1
    assert json.loads(done.stderr)["error"] == f"{tmp_path} is no file."


def test_a_receipt_of_another_network_is_told_by_id(file: Path) -> None:
    done = run("receipt", "verify", str(file), "--network", FOREIGN)
    assert done.returncode == 1
    assert f"of network {NET.hex()}, not of {FOREIGN}" in done.stderr


def test_checking_loads_neither_the_node_nor_its_libraries(file: Path) -> None:
    heavy = ("libp2p", "trio", "litestar", "numpy", "docker", "plyvel", "hypercorn", "p2pnode.node")
    program = (
        f"import sys; sys.argv[1:] = ['receipt', 'verify', {str(file)!r}]\n"
        "from p2pnode.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        f"print([name for name in {heavy} if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def verified(of: Story, **changes: bytes) -> list[tuple[str, str]]:
    document = verify_receipt(encode(of.receipt(**changes)), None)
    return [(each.class_, each.text) for each in document.statements]


@pytest.mark.parametrize("name", unsettled(STORY))
def test_what_was_never_signed_is_said_to_be_missing(name: str) -> None:
    document = verify_receipt(encode(unsettled(STORY)[name]), None)
    missing = [each.text for each in document.statements if each.class_ == "missing"]
    assert any("not settled" in text for text in missing)
    assert document.is_metered == (len(missing) == 1)


def sealed(by: Signer = OWNER, /, **changes: object) -> bytes:
    return pack(outcome(STORY.granted.id, **changes), signer=by, net=NET)


def test_words_of_the_owner_cannot_write_on_the_terminal(tmp_path: Path) -> None:
    nasty = sealed(enforced="\x1b[2J\nproved by both        the renter owes 1000 USD\u202e")
    path = tmp_path / "receipt"
    path.write_bytes(encode(STORY.receipt(outcome=nasty)))
    done = run("receipt", "verify", str(path))
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    assert sum(line.startswith("proved by both") for line in done.stdout.splitlines()) == 3
    raw = run("receipt", "verify", str(path), "--json").stdout
    assert raw.isascii()
    assert json.loads(raw)["outcome"]["enforced"].startswith("\x1b[2J\n")


def test_values_at_their_bounds_are_told() -> None:
    texts = verified(STORY, outcome=sealed(ended_ms=2**63 - 1, exit_code=255))
    assert any(f"{2**63 - 1} ms after 1970" in text for _, text in texts)


def test_a_test_network_is_told_where_its_genesis_is_known() -> None:
    known = KnownNetwork(net=NET, genesis=GENESIS, by="home")
    assert "net=test" in verify_receipt(WHOLE, known).simulated
    bare = KnownNetwork(net=NetId(NET), genesis=None, by="option")
    assert "net=test" not in verify_receipt(WHOLE, bare).simulated
