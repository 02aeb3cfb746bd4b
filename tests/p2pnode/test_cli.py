"""The command line as a user meets it: quick, clear, and never a traceback."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("libp2p", "trio", "litestar", "numpy", "docker", "nacl", "cbor2", "plyvel", "hypercorn")


def run(*arguments: str, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home or "/nonexistent")}
    if home is not None:
        environment["P2PNODE_HOME"] = str(home)
    return subprocess.run(
        [sys.executable, "-m", "p2pnode", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=50,
        check=False,
    )


@pytest.mark.parametrize("arguments", [["--help"], ["offer", "search", "--help"], ["up", "--help"]])
def test_help_loads_none_of_the_nodes_libraries(arguments: list[str]) -> None:
    program = (
        "import sys; sys.argv[1:] = " + repr(arguments) + "\n"
        "from p2pnode.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True
    )
    assert done.stderr.strip() == "[]"
    assert done.stdout.startswith("Usage: p2pnode")


def test_help_names_every_command() -> None:
    from p2pnode.cli import COMMANDS

    text = run("--help").stdout
    assert all(f"  {name} " in text for name in COMMANDS)


def test_every_command_of_the_table_can_be_loaded() -> None:
    import click

    from p2pnode.cli import COMMANDS, cli

    for name in COMMANDS:
        assert isinstance(cli.get_command(click.Context(cli), name), click.Command)


def test_an_unknown_command_is_a_usage_error_with_a_hint() -> None:
    done = run("offr")
    assert done.returncode == 2
    assert done.stderr.startswith("error: No such command 'offr'")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_without_a_node_the_exit_code_says_unreachable(tmp_path: Path) -> None:
    done = run("offer", "search", home=tmp_path)
    assert done.returncode == 6
    assert done.stderr.startswith("error: no node answers on ")
    assert done.stdout == ""


def test_an_error_is_one_json_object_on_stderr_when_json_was_asked_for(tmp_path: Path) -> None:
    done = run("status", "--json", home=tmp_path)
    assert done.returncode == 6
    assert json.loads(done.stderr)["error"].startswith("no node answers")
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["offer", "search", "--vram", "24"], "unit"),
        (["offer", "search", "--max-price", "0.40"], "0.38 USD/gpu-h"),
        (["ask", "set", "0.40"], "0.38 USD/gpu-h"),
        (["up"], "belongs to no network"),
        (["network", "show"], "belongs to no network"),
        (["network", "join", "nonsense"], "p2pnode:join/"),
    ],
)
def test_what_cannot_be_done_is_said_with_a_cure(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    done = run(*arguments, home=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "  try: " in done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_fresh_home_joins_from_one_line(tmp_path: Path) -> None:
    founder, guest = tmp_path / "founder", tmp_path / "guest"
    created = json.loads(run("network", "create", "ours", "--test", "--json", home=founder).stdout)
    link = run("network", "invite", home=founder).stdout.strip()
    assert link.startswith("p2pnode:join/")
    assert "\n" not in link
    joined = json.loads(run("network", "join", link, "--json", home=guest).stdout)
    assert joined["id"] == created["id"]
    assert joined["kind"] == "test"
    assert joined["money"] == "TEST"
    shown = json.loads(run("network", "show", "--json", home=guest).stdout)
    assert shown == joined


def test_a_home_belongs_to_one_network(tmp_path: Path) -> None:
    ours, other = tmp_path / "ours", tmp_path / "other"
    run("network", "create", "ours", "--test", home=ours)
    run("network", "create", "other", "--test", home=other)
    link = run("network", "invite", home=other).stdout.strip()
    for arguments in (["network", "join", link], ["network", "create", "again"]):
        done = run(*arguments, home=ours)
        assert done.returncode == 1
        assert "belongs to" in done.stderr


def test_simulated_gpus_are_not_offered_on_a_main_network(tmp_path: Path) -> None:
    run("network", "create", "real", "--main", home=tmp_path)
    (tmp_path / "config.toml").write_text(
        '[[gpu.simulated]]\nmodel = "RTX 4090"\nvram = "24564MiB"\n'
    )
    done = run("up", home=tmp_path)
    assert done.returncode == 1
    assert "test networks only" in done.stderr


def test_a_port_that_is_taken_is_said_in_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        run("network", "create", "ours", "--test", home=tmp_path)
        (tmp_path / "config.toml").write_text(
            f'[network]\nlisten = ["/ip4/127.0.0.1/tcp/{port}"]\n'
        )
        done = run("up", home=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: cannot listen on /ip4/127.0.0.1/tcp/{port}")
    assert "Traceback" not in done.stderr


def test_an_unknown_config_key_names_file_line_and_the_nearest_key(tmp_path: Path) -> None:
    run("network", "create", "ours", "--test", home=tmp_path)
    (tmp_path / "config.toml").write_text('name = "x"\n[pricing]\naks = "0.38 USD/gpu-h"\n')
    done = run("up", home=tmp_path)
    assert done.returncode == 1
    assert "config.toml:3" in done.stderr
    assert "pricing.ask" in done.stderr


ANSWERS = ("--name", "rig", "--roles", "owner,renter", "--region", "de", "--join", "")


def test_init_writes_a_configuration_that_holds(tmp_path: Path) -> None:
    done = run("init", *ANSWERS, "--ask", "0.38 USD/gpu-h", home=tmp_path)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "config.toml").read_text()
    assert 'region = "DE"' in text
    assert 'ask = "0.38 USD/gpu-h"' in text
    again = run("init", *ANSWERS, "--ask", "", home=tmp_path)
    assert again.returncode == 1
    assert "is there already" in again.stderr


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--roles", "owner,lender", "no roles"),
        ("--ask", "0.38", "0.38 USD/gpu-h"),
        ("--region", "Germany", "network.region"),
    ],
)
def test_init_refuses_a_wrong_answer_and_writes_nothing(
    tmp_path: Path, option: str, value: str, said: str
) -> None:
    answers = dict(zip(ANSWERS[::2], ANSWERS[1::2], strict=True)) | {"--ask": ""} | {option: value}
    done = run("init", *(part for pair in answers.items() for part in pair), home=tmp_path)
    assert done.returncode == 1
    assert said in done.stderr
    assert not (tmp_path / "config.toml").exists()


def test_init_does_not_wait_for_answers_that_nobody_can_give(tmp_path: Path) -> None:
    done = run("init", home=tmp_path)
    assert done.returncode == 1
    assert "nobody is there to answer" in done.stderr


def findings(home: Path) -> dict[str, str]:
    items = json.loads(run("doctor", "--json", home=home).stdout)["items"]
    return {item["check"]: item["state"] for item in items}


def test_doctor_finds_what_is_missing_and_then_nothing(tmp_path: Path) -> None:
    assert run("doctor", home=tmp_path).returncode == 1
    assert findings(tmp_path)["network"] == "fail"
    run("network", "create", "ours", "--test", home=tmp_path)
    (tmp_path / "config.toml").write_text('[network]\nlisten = ["/ip4/127.0.0.1/tcp/0"]\n')
    found = findings(tmp_path)
    assert "fail" not in found.values()
    assert found["ledger"] == "ok"
    assert found["price"] == "warn"


def test_a_calendar_that_would_be_misread_is_named_before_the_node_starts(tmp_path: Path) -> None:
    run("network", "create", "ours", "--test", home=tmp_path)
    calendar = tmp_path / "rig.ics"
    calendar.write_text(
        "BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:x\nBEGIN:VEVENT\nUID:7\nSUMMARY:Nights\n"
        "DTSTART;TZID=Mars/Olympus:20261101T220000\nDURATION:PT8H\nEND:VEVENT\nEND:VCALENDAR\n"
    )
    (tmp_path / "config.toml").write_text(f'[[availability]]\nfile = "{calendar}"\n')
    for command in ("doctor", "up"):
        done = run(command, home=tmp_path)
        assert done.returncode == 1
        told = done.stdout + done.stderr
        for each in (str(calendar), 'event "Nights" (UID 7)', "Mars/Olympus", "mend or take out"):
            assert each in told


def test_doctor_names_the_key_file_that_is_open_to_others(tmp_path: Path) -> None:
    run("network", "create", "ours", "--test", home=tmp_path)
    (tmp_path / "keys" / "feed.key").chmod(0o644)
    done = run("doctor", home=tmp_path)
    assert done.returncode == 1
    assert "chmod 600" in done.stderr
