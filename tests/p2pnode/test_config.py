"""Rules of config.toml: typed values, and faults that name file, line, key and cure."""

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import protocol.advert
from p2pnode import config_keys
from p2pnode.config import (
    DEFAULTS,
    Availability,
    Config,
    EngineChoice,
    GossipChoice,
    Gpu,
    Network,
    Pricing,
    Role,
    SimulatedGpu,
    Tier,
    Workloads,
    home_variable,
    load_config,
    read_config,
)
from p2pnode.config_keys import KEYS
from p2pnode.config_text import default_config_text
from p2pnode.quantities import Money
from protocol.errors import LocalFault
from protocol.units import Mebibytes, Micros, MillisSpan

PEER = "/dns4/boot.example/tcp/4001/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"
ALL = f"""
schema = 1
name = "attic-rig"
roles = ["renter", "owner"]

[network]
listen = ["/ip4/0.0.0.0/tcp/4001", "/ip6/::/tcp/4001"]
announce = ["/dns4/rig.example/tcp/4001"]
bootstrap = ["{PEER}"]
mdns = false
region = "DE"
heartbeat = "10s"
gossip = "off"

[pricing]
ask = "0.38 USD/gpu-h"
min_lease = "10m"
max_lease = "1d"
period = "30s"
tiers = ["bronze", "gold"]

[[availability]]
hours = "22:00-06:00 daily"
tz = "Europe/Berlin"
except = ["2026-12-24"]
[[availability]]
file = "/home/me/rig.ics"
closed = true

[[gpu.simulated]]
model = "RTX 4090"
vram = "24564MiB"
count = 2
[[gpu.simulated]]
model = "H100"
vram = "80GB"

[workloads]
engine = "docker"
"""


def read(text: str, **variables: str) -> Config:
    return read_config(text, origin="config.toml", variables=variables)


def fault_of(text: str, **variables: str) -> LocalFault:
    with pytest.raises(LocalFault) as caught:
        read(text, **variables)
    return caught.value


def test_an_empty_file_means_the_defaults() -> None:
    assert read("") == DEFAULTS
    assert DEFAULTS.network.heartbeat == 30_000
    assert DEFAULTS.pricing.max_lease == 604_800_000


def test_values_come_out_as_integers() -> None:
    assert read(ALL) == Config(
        name="attic-rig",
        network=Network(
            listen=("/ip4/0.0.0.0/tcp/4001", "/ip6/::/tcp/4001"),
            announce=("/dns4/rig.example/tcp/4001",),
            bootstrap=(PEER,),
            mdns=False,
            region="DE",
            heartbeat=MillisSpan(10_000),
            gossip="off",
        ),
        pricing=Pricing(
            ask=Money(Micros(380_000), "USD"),
            min_lease=MillisSpan(600_000),
            max_lease=MillisSpan(86_400_000),
            period=MillisSpan(30_000),
            tiers=("gold", "bronze"),
        ),
        availability=(
            Availability(
                hours="22:00-06:00 daily",
                tz="Europe/Berlin",
                excepted=("2026-12-24",),
            ),
            Availability(file="/home/me/rig.ics", closed=True),
        ),
        gpu=Gpu(
            simulated=(
                SimulatedGpu(model="RTX 4090", vram=Mebibytes(24_564), count=2),
                SimulatedGpu(model="H100", vram=Mebibytes(76_293)),
            )
        ),
        workloads=Workloads(engine="docker"),
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("\n\nrole = []", 'config.toml:3: unknown key "role"; did you mean "roles"?'),
        (
            '[pricing]\n# ask = "1"\nasc = "1 USD/gpu-h"',
            'config.toml:3: unknown key "pricing.asc"; did you mean "pricing.ask"?',
        ),
        (
            'heartbeat = "3s"',
            'config.toml:1: unknown key "heartbeat"; did you mean "network.heartbeat"?',
        ),
        ("[netwrk]\n", 'config.toml:1: unknown key "netwrk"; did you mean "network"?'),
        ("[network]\nzzz = 1", 'config.toml:2: unknown key "network.zzz".'),
        (
            '[[gpu.simulated]]\nmodel = "A"\nvram = "8GB"\ncuont = 2',
            'config.toml:4: unknown key "gpu.simulated.cuont"; did you mean "gpu.simulated.count"?',
        ),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(text: str, what: str) -> None:
    assert fault_of(text).what == what


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("schema = 2", "config.toml:1: schema is 2,"),
        ("schema = true", "config.toml:1: schema is True,"),
        ('name = ""', 'config.toml:1: name is "",'),
        ('name = "a\\nb"', "config.toml:1: name is "),
        ("roles = []", "config.toml:1: roles is [],"),
        ('roles = ["owner", "owner"]', "config.toml:1: roles is "),
        ('roles = "owner"', 'config.toml:1: roles is "owner",'),
        ('[network]\nlisten = "/ip4/0.0.0.0/tcp/1"', "config.toml:2: network.listen is "),
        ('[network]\nlisten = ["0.0.0.0:4001"]', "config.toml:2: network.listen is "),
        ('[network]\nlisten = ["/a", "/a"]', "config.toml:2: network.listen is "),
        ('[network]\nannounce = ["/a b"]', "config.toml:2: network.announce is "),
        (
            '[network]\nbootstrap = ["/ip4/1.2.3.4/tcp/4001"]',
            "config.toml:2: network.bootstrap is ",
        ),
        ('[network]\nmdns = "yes"', 'config.toml:2: network.mdns is "yes",'),
        ("[network]\nmdns = 1", "config.toml:2: network.mdns is 1,"),
        ('[network]\nregion = "de"', 'config.toml:2: network.region is "de",'),
        ('[network]\nregion = "DEU"', "config.toml:2: network.region is "),
        ('[network]\nheartbeat = "30"', 'config.toml:2: network.heartbeat: "30" has no unit.'),
        ("[network]\nheartbeat = 30", "config.toml:2: network.heartbeat is 30,"),
        ('[network]\nheartbeat = "99ms"', "config.toml:2: network.heartbeat is "),
        ("[network]\ngossip = true", "config.toml:2: network.gossip is True,"),
        ('[pricing]\nask = "0.38"', 'config.toml:2: pricing.ask: "0.38" has no unit.'),
        ("[pricing]\nask = 0.38", "config.toml:2: pricing.ask is 0.38,"),
        ('[pricing]\nmin_lease = "0s"', "config.toml:2: pricing.min_lease is "),
        ('[pricing]\nmax_lease = "10s"', "config.toml:2: pricing.min_lease is longer"),
        ('[pricing]\nmin_lease = "8d"', "config.toml:2: pricing.min_lease is longer"),
        ('[pricing]\nperiod = "2d"', "config.toml:2: pricing.period is "),
        ('[pricing]\ntiers = ["platinum"]', "config.toml:2: pricing.tiers is "),
        ('[workloads]\nengine = "podman"', "config.toml:2: workloads.engine is "),
        ('[[gpu.simulated]]\nmodel = "A"', "config.toml:1: gpu.simulated.vram is missing"),
        (
            '[[gpu.simulated]]\nmodel = "A"\nvram = "1MB"',
            "config.toml:3: gpu.simulated.vram is ",
        ),
        (
            '[[gpu.simulated]]\nmodel = "A"\nvram = "8GB"\ncount = 65',
            "config.toml:4: gpu.simulated.count is 65,",
        ),
    ],
)
def test_a_bad_value_is_refused_with_its_place_and_a_right_one(text: str, place: str) -> None:
    fault = fault_of(text)
    assert fault.what.startswith(place)
    assert fault.cure.startswith("write for example ")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("network = 3", "config.toml:1: network is a table."),
        ("[gpu.simulated]\n", "config.toml:1: gpu.simulated is a table."),
        ("[gpu]\nsimulated = [1]", "config.toml:2: gpu.simulated is a table."),
    ],
)
def test_a_value_in_place_of_a_table_is_refused(text: str, place: str) -> None:
    assert fault_of(text).what == place


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('network.region = "x"', 1),
        ('\nnetwork = { heartbeat = "1s", region = "x" }', 2),
        ('[pricing]\n[ network ]\nheartbeat = "1s"\n"region" = "x"', 4),
        ('# region = "x"\n[network] # [pricing]\n\n  region="x"', 4),
    ],
)
def test_the_line_is_found_however_the_key_is_written(text: str, line: int) -> None:
    assert fault_of(text).what.startswith(f"config.toml:{line}: network.region ")


def test_the_line_is_that_of_the_right_one_of_repeated_tables() -> None:
    good = '[[gpu.simulated]]\nmodel = "A"\nvram = "8GB"\n'
    assert fault_of(good + good.replace("8GB", "8")).what.startswith("config.toml:6: ")


@pytest.mark.parametrize(
    ("text", "line"), [("a = 1\nb =\nc = 3", 2), ("a = [\n1,\n", 2), ("a = 1\na = 2", 2)]
)
def test_a_syntax_error_keeps_its_line(text: str, line: int) -> None:
    assert fault_of(text).what.startswith(f"config.toml:{line}: this is not TOML: ")


@pytest.mark.parametrize("key", [key for key in KEYS if not key.startswith("gpu.")])
def test_the_example_of_each_key_is_right(key: str) -> None:
    table, _, leaf = key.rpartition(".")
    if table != "availability":
        ask = f"pricing.ask = {KEYS['pricing.ask'].example}\n" if leaf == "strategy" else ""
        read(f"{ask}{key} = {KEYS[key].example}")
        return
    hours = "" if leaf in {"hours", "file"} else 'hours = "daily"\n'
    [window] = read(f"[[availability]]\n{hours}{leaf} = {KEYS[key].example}").availability
    assert (window.hours or window.file, leaf) != ("", "file")


def test_a_variable_goes_before_the_file() -> None:
    config = read(
        ALL,
        P2PNODE_NAME="cellar",
        P2PNODE_ROLES="renter",
        P2PNODE_SCHEMA="1",
        P2PNODE_NETWORK__REGION="FR",
        P2PNODE_NETWORK__LISTEN="/ip4/1.2.3.4/tcp/1, /ip4/1.2.3.4/tcp/2",
        P2PNODE_NETWORK__BOOTSTRAP="",
        P2PNODE_PRICING__ASK="0.10 EUR/gpu-h",
    )
    assert (config.name, config.roles, config.network.region) == ("cellar", ("renter",), "FR")
    assert config.network.listen == ("/ip4/1.2.3.4/tcp/1", "/ip4/1.2.3.4/tcp/2")
    assert config.network.bootstrap == ()
    assert config.pricing.ask == (100_000, "EUR")
    assert config.pricing.period == 30_000


def test_a_variable_goes_before_a_bad_value_in_the_file() -> None:
    assert read('[network]\nregion = "x"', P2PNODE_NETWORK__REGION="FR").network.region == "FR"
    assert not read("", P2PNODE_NETWORK__MDNS="false").network.mdns


def test_variables_of_other_uses_are_left_alone() -> None:
    assert read("", P2PNODE_HOME="/x", P2PNODE_DEBUG="1", NETWORK__REGION="x") == DEFAULTS


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("P2PNODE_NETWORK__REGION", "x", 'P2PNODE_NETWORK__REGION: network.region is "x",'),
        ("P2PNODE_NETWORK__HEARTBEAT", "3", "P2PNODE_NETWORK__HEARTBEAT: network.heartbeat: "),
        ("P2PNODE_NETWORK__MDNS", "no", 'P2PNODE_NETWORK__MDNS: network.mdns is "no",'),
        ("P2PNODE_PRICING__PERIDO", "3", 'P2PNODE_PRICING__PERIDO: unknown key "pricing.perido";'),
        ("P2PNODE_GPU__SIMULATED", "1", "P2PNODE_GPU__SIMULATED: this is set in config.toml only"),
    ],
)
def test_a_bad_variable_is_refused_by_its_name(name: str, value: str, what: str) -> None:
    fault = fault_of("", **{name: value})
    assert fault.what.startswith(what)
    assert fault.cure


def test_a_missing_file_means_the_defaults(tmp_path: Path) -> None:
    assert load_config(tmp_path / "config.toml") == DEFAULTS


def test_a_file_is_named_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("schema = 2")
    with pytest.raises(LocalFault, match=rf"^{path}:1: "):
        load_config(path)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"\xff")
    with pytest.raises(LocalFault, match="UTF-8"):
        load_config(path)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalFault, match="cannot be read"):
        load_config(tmp_path)


def test_the_home_is_what_the_variable_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P2PNODE_HOME", "/somewhere")
    assert home_variable() == Path("/somewhere")
    monkeypatch.setenv("P2PNODE_HOME", "")
    assert home_variable() is None


NAMES = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=64)
SPANS = st.integers(1_000, 86_400_000).map(MillisSpan)


@given(
    name=NAMES,
    region=st.sampled_from(["ZZ", "DE"]),
    ask=st.none() | st.builds(Money, st.integers(0, 2**63 - 1).map(Micros), st.just("TEST")),
    spans=st.tuples(SPANS, SPANS, SPANS),
    models=st.lists(NAMES, max_size=3),
)
def test_a_file_written_out_is_read_back(
    name: str,
    region: str,
    ask: Money | None,
    spans: tuple[MillisSpan, MillisSpan, MillisSpan],
    models: list[str],
) -> None:
    shorter, longer = sorted(spans[:2])
    config = Config(
        name=name,
        roles=("renter",),
        network=Network(bootstrap=(PEER,), region=region),
        pricing=Pricing(ask=ask, min_lease=shorter, max_lease=longer, period=spans[2]),
        gpu=Gpu(
            simulated=tuple(SimulatedGpu(model=model, vram=Mebibytes(24_564)) for model in models)
        ),
    )
    assert read(default_config_text(config)) == config


def test_the_default_text_and_its_commented_examples_are_right() -> None:
    text = default_config_text()
    assert read(text) == DEFAULTS
    config = read(re.sub(r"(?m)^# (?=\[\[|\w+ = )", "", text))
    assert config.pricing.ask
    assert config.gpu.simulated


def test_the_words_are_those_of_the_protocol() -> None:
    assert config_keys.TIERS == protocol.advert.TIERS == get_args(Tier)
    assert get_args(Role) == config_keys.ROLES
    assert get_args(GossipChoice) == config_keys.GOSSIP
    assert get_args(EngineChoice) == config_keys.ENGINES


def test_the_command_line_may_load_it_without_the_node() -> None:
    script = (
        "import sys, p2pnode.config, p2pnode.home;"
        "heavy = ('trio', 'libp2p', 'nacl', 'cbor2', 'docker', 'litestar', 'filelock');"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == b"[]\n"
