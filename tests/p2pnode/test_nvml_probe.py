"""The real pynvml over tests/fake_nvml.c. Letters and numbers are cases of public complaints."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from p2pnode.execution.nvml_probe import FOREIGN_MIB, unit_of
from protocol.units import PublicKey
from tests.fake_driver import build_fake_nvml

READER = Path(__file__).parent.parent / "nvml_reader.py"
FEED = PublicKey(bytes(range(32)))
Step = dict[str, Any]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_fake_nvml(tmp_path_factory.mktemp("nvml") / "new")


@pytest.fixture(scope="module")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_fake_nvml(tmp_path_factory.mktemp("nvml") / "old", "-DOLD")


def probe(
    tmp_path: Path, library: Path | None, *steps: str | Step, feed: bytes = FEED
) -> list[Any]:
    """What one probe says after each step, which is a state of the fake."""
    lines = [json.dumps(step if isinstance(step, dict) else {"state": step}) for step in steps]
    root = str(READER.parent.parent)
    environment = {
        # No nvidia-smi anywhere: the probe must not need it.
        "PATH": "/nowhere",
        "PYTHONPATH": root,
        "LD_LIBRARY_PATH": str(library or ""),
        "FAKE_NVML": str(tmp_path / "state"),
        "FAKE_PCI": str(tmp_path / "pci"),
        "FEED": feed.hex(),
    }
    done = subprocess.run(
        [sys.executable, READER],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
        cwd=root,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def gpu(number: int = 1, **keys: object) -> str:
    values = {"name": "NVIDIA_L4", "total": 24_564, "ecc": -1} | keys
    return f"gpu GPU-{number} " + " ".join(f"{key}={value}" for key, value in values.items()) + "\n"


def test_a_gpu_is_told_by_the_library_alone(tmp_path: Path, library: Path) -> None:
    # D7
    (said,) = probe(tmp_path, library, gpu(name="NVIDIA_H200", total=143_771))
    unit = unit_of(FEED, "GPU-1").hex()
    expected = {
        "unit": unit,
        "model": "NVIDIA H200",
        "vram": 143_771,
        "source": "nvml",
        "driver": "570.86.15",
        "compute": [8, 9],
        "device": "GPU-1",
    }
    assert said == {"problems": [], "gpus": [expected]}


def test_without_a_driver_there_are_no_gpus_and_a_reason(tmp_path: Path) -> None:
    (said,) = probe(tmp_path, None, "")
    assert said == {"problems": ["no NVIDIA driver"], "gpus": []}


def test_a_gpu_on_the_bus_without_a_driver_is_mentioned(tmp_path: Path) -> None:
    # D7
    for number, kind in (("0", "0x020000"), ("1", "0x030200")):
        device = tmp_path / "pci" / number
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x10de\n" if number == "1" else "0x8086\n")
        (device / "class").write_text(kind + "\n")
    (said,) = probe(tmp_path, None, "")
    assert said["problems"] == ["no NVIDIA driver, though an NVIDIA GPU is on the PCI bus"]


def test_units_last_and_tell_accounts_no_common_host(tmp_path: Path, library: Path) -> None:
    (first,) = probe(tmp_path, library, gpu())
    (again,) = probe(tmp_path, library, gpu(total=10))
    (other,) = probe(tmp_path, library, gpu(), feed=bytes(32))
    assert len(bytes.fromhex(first["gpus"][0]["unit"])) == 16
    assert again["gpus"][0]["unit"] == first["gpus"][0]["unit"]
    assert other["gpus"][0]["unit"] != first["gpus"][0]["unit"]


@pytest.mark.parametrize("loss", [{"code": 15}, {"handle": 15}, {"code": 999}, {"handle": 999}])
def test_of_four_gpus_a_lost_one_is_left_out(
    tmp_path: Path, library: Path, loss: dict[str, int]
) -> None:
    # D8
    four = [gpu(number) for number in range(4)]
    three = [*four[:2], gpu(2, **loss), four[3]]
    before, after, healed = probe(tmp_path, library, "".join(four), "".join(three), "".join(four))
    left = [before["gpus"][i] for i in (0, 1, 3)]
    assert after["gpus"] == left
    assert after["problems"] == [
        "GPU 2: " + ("GPU is lost" if 15 in loss.values() else "Unknown Error")
    ]
    assert healed == before


def test_a_gpu_that_left_the_bus_is_gone(tmp_path: Path, library: Path) -> None:
    # D8
    before, after = probe(tmp_path, library, gpu(0) + gpu(1), gpu(1))
    assert after["gpus"] == before["gpus"][1:]


def test_what_others_use_of_the_memory_is_not_offered(tmp_path: Path, library: Path) -> None:
    # B11
    states = [gpu(used=used) for used in (0, FOREIGN_MIB, FOREIGN_MIB + 1, 14_738, 24_564)]
    said = probe(tmp_path, library, *states)
    offered = [[one["vram"] for one in answer["gpus"]] for answer in said]
    assert offered == [[24_564], [24_564], [23_808], [9_728], []]
    assert said[4]["problems"] == ["GPU 0: other programs use all its memory"]


def test_what_the_driver_reserves_is_not_used_by_others(tmp_path: Path, library: Path) -> None:
    (said,) = probe(tmp_path, library, gpu(reserved=700, used=10))
    assert said["gpus"][0]["vram"] == 24_564


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"name": "-"}, "it reports no model"),
        ({"name": "\x7f"}, "its model '\\x7f' cannot be shown on one short line"),
        ({"name": "n" * 65}, f"its model '{'n' * 65}' cannot be shown on one short line"),
        ({"total": 0}, "it reports no memory"),
        ({"mig": 1}, "it is split by MIG, which is not offered yet"),
        ({"ecc": 2}, "its memory had 2 errors that it could not correct: reset it"),
    ],
)
def test_a_gpu_that_is_unfit_is_left_out_with_a_reason(
    tmp_path: Path, library: Path, keys: dict[str, object], problem: str
) -> None:
    # B13, D10
    (said,) = probe(tmp_path, library, gpu(1, **keys) + gpu(2))
    assert [one["unit"] for one in said["gpus"]] == [unit_of(FEED, "GPU-2").hex()]
    assert said["problems"] == [f"GPU 0: {problem}"]


def test_a_gpu_without_uuid_is_left_out(tmp_path: Path, library: Path) -> None:
    (said,) = probe(tmp_path, library, "gpu - total=10 name=X\n")
    assert (said["gpus"], said["problems"]) == ([], ["GPU 0: it reports no UUID"])


def test_a_model_that_nobody_knows_is_offered_as_reported(tmp_path: Path, library: Path) -> None:
    # D9
    (said,) = probe(tmp_path, library, gpu(name="NVIDIA_Graphics_Device_X9", total=7))
    assert said["gpus"][0]["model"] == "NVIDIA Graphics Device X9"
    assert said["gpus"][0]["vram"] == 7


def test_a_driver_that_lacks_newer_calls_will_do(tmp_path: Path, old_library: Path) -> None:
    (said,) = probe(tmp_path, old_library, gpu(reserved=100, used=400) + gpu(2, used=2_000))
    assert [one["vram"] for one in said["gpus"]] == [24_564, 22_528]
    assert said["problems"] == []


def test_a_driver_that_does_not_start_is_unavailable_until_it_does(
    tmp_path: Path, library: Path
) -> None:
    failed, lost, well = probe(tmp_path, library, "init 18\n" + gpu(), {"state": None}, gpu())
    problem = "NVML does not start: RM has detected an NVML/RM version mismatch."
    assert (failed["unavailable"], failed["problems"]) == (problem, [problem])
    assert lost["unavailable"] == "NVML does not start: Driver Not Loaded"
    assert len(well["gpus"]) == 1


@pytest.mark.parametrize("call", ["nvmlDeviceGetName", "nvmlInitWithFlags"])
def test_a_driver_that_hangs_is_unavailable_and_takes_one_thread(
    tmp_path: Path, library: Path, call: str
) -> None:
    hang = f"hang {call}\n" + gpu()
    hung, still_hung, well = probe(
        tmp_path, library, hang, hang, {"state": gpu(), "until_idle": True}
    )
    for said in (hung, still_hung):
        assert said["unavailable"] == "NVML gave no answer within 10 seconds"
        assert said["problems"] == [said["unavailable"]]
    assert len(well["gpus"]) == 1


def test_what_runs_on_a_gpu_is_told_with_whose_it_is(
    tmp_path: Path, library: Path, old_library: Path
) -> None:
    # M12
    states = [gpu(load=63, pid=42, sm=60), gpu(load=5), gpu(load=63, pid=-1), gpu(handle=15)]
    said = probe(tmp_path, library, *({"state": state, "look": True} for state in states))
    unit = unit_of(FEED, "GPU-1").hex()
    assert [answer["uses"] for answer in said] == [
        [{"unit": unit, "load_ppm": 630_000, "processes": [[42, 600_000]]}],
        [{"unit": unit, "load_ppm": 50_000, "processes": []}],
        [{"unit": unit, "load_ppm": 630_000, "processes": None}],
        [],
    ]


def test_a_driver_that_is_lost_while_it_is_looked_at_is_looked_for_again(
    tmp_path: Path, library: Path
) -> None:
    well, lost, again = probe(
        tmp_path,
        library,
        {"state": gpu(load=1), "look": True},
        {"state": None, "look": True},
        {"state": gpu(load=2), "look": True},
    )
    assert well["uses"][0]["load_ppm"] == 10_000
    assert "uses" not in lost or lost["uses"] == []
    assert again["uses"][0]["load_ppm"] == 20_000


def test_without_a_driver_nothing_is_seen(tmp_path: Path) -> None:
    (said,) = probe(tmp_path, None, {"state": "", "look": True})
    assert said == {"uses": []}
