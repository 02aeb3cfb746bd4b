"""Templates of primaries: what they make of a job, hostile ones too, and of an answer."""

import json
import re
import shlex
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.jobs.primary_template import SHIPPED, VALUES, Verb, load_template, values_of
from protocol.errors import LocalFault
from tests.primary_samples import SAMPLES, Sample

IMAGE = "python@sha256:" + "0" * 64
WORDS = st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=4)
TEMPLATE = """
about = "Mine."
start = ["sub", "{name}"]
state = ["q", "{name}"]
stop = ["end", "{name}"]
"""


def values(**changes: Any) -> dict[str, object]:
    fields: dict[str, Any] = {
        "name": "job-22222222",
        "argv": ("python3", "train.py"),
        "variables": {"COLOUR": "blue"},
        "image": IMAGE,
        "input_folder": None,
        "models": ("RTX 4090",),
        "regions": (),
        "gpus": 2,
        "vram_mib": 22_889,
        "cpus_milli": 2_500,
        "memory_mib": 2_048,
        "disk_mib": 1_024,
        "time_ms": 90_000,
        "file": "/rentals/file",
        **changes,
    }
    return values_of(**fields)


def document(name: str, **changes: Any) -> Any:
    return json.loads(load_template(name).document(values(**changes)))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_template_that_ships_makes_commands_and_a_file_of_a_job(name: str) -> None:
    template = load_template(name)
    template.check(values())
    for verb in get_args(Verb):
        words = template.words(verb, values())
        assert not any(re.search(r"\{[a-z_]+\}", word) for word in words)
        told = " ".join(template.words(verb, values()))
        assert ("/rentals/file" if verb == "start" else "job-22222222") in told
    assert "job-22222222" in json.dumps(document(name))
    assert template.read(127, "command not found")[0] in {"unclear", "absent"}


def test_kubernetes_gets_a_job_of_one_pod() -> None:
    spec = document("kubernetes")["spec"]["template"]["spec"]
    [container] = spec["containers"]
    assert container["command"] == ["python3", "train.py"]
    assert container["image"] == IMAGE
    assert container["env"] == [{"name": "COLOUR", "value": "blue"}]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 2
    assert container["resources"]["limits"]["cpu"] == "2500m"
    assert '"Gt", "values": ["22888"]' in json.dumps(spec["affinity"])
    small = document("kubernetes", vram_mib=1, variables={})["spec"]["template"]["spec"]
    assert "affinity" not in small
    assert "env" not in small["containers"][0]


def test_dstack_and_skypilot_get_a_task() -> None:
    task = document("dstack")
    assert (task["type"], task["commands"]) == ("task", ["python3 train.py"])
    assert task["resources"]["gpu"] == {"name": ["RTX4090"], "memory": "23GB..", "count": 2}
    task = document("skypilot", input_folder="/data")
    assert (task["run"], task["workdir"]) == ("python3 train.py", "/data")
    assert task["resources"]["accelerators"] == "RTX4090:2"
    assert task["envs"] == {"COLOUR": "blue"}


def expanded_by_kubernetes(text: str, variables: dict[str, str]) -> str:
    """As its documentation has it: $(NAME) is replaced where it is known, and $$ is a $."""
    return re.sub(
        r"\$\$|\$\(([^)]*)\)",
        lambda found: "$" if found[0] == "$$" else variables.get(found[1], found[0]),
        text,
    )


@given(WORDS)
def test_no_word_of_a_job_is_read_as_something_else(argv: list[str]) -> None:
    job = {"argv": tuple(argv), "variables": {"X": argv[0]}}
    [container] = document("kubernetes", **job)["spec"]["template"]["spec"]["containers"]
    known = {"X": "expanded"}
    assert [expanded_by_kubernetes(word, known) for word in container["command"]] == argv
    assert expanded_by_kubernetes(container["env"][0]["value"], known) == argv[0]
    assert shlex.split(document("skypilot", **job)["run"]) == argv
    [command] = document("dstack", **job)["commands"]
    assert "$" not in command.replace("$$", "")
    assert shlex.split(command.replace("$$", "$")) == argv


def test_what_a_value_says_is_not_filled_again() -> None:
    assert document("skypilot", argv=("{image}", "$(reboot)"))["run"] == "'{image}' '$(reboot)'"
    assert document("skypilot", variables={"A": "{name}"})["envs"] == {"A": "{name}"}


@pytest.mark.parametrize(
    ("name", "code", "printed", "said"),
    [
        ("kubernetes", 0, "Unschedulable Pending ", ("out_of_stock", None)),
        ("kubernetes", 0, " Pending ", ("unclear", None)),
        ("kubernetes", 0, " Running ", ("running", None)),
        ("kubernetes", 0, " Succeeded 0", ("ended", 0)),
        ("kubernetes", 0, " Failed 137", ("ended", 137)),
        ("kubernetes", 0, " Failed ", ("failed", None)),
        ("kubernetes", 0, "", ("absent", None)),
        ("kubernetes", 1, "Unable to connect to the server: dial tcp", ("refused", None)),
        ("kubernetes", 1, "error: something", ("unclear", None)),
        ("skypilot", 1, "sky.exceptions.ResourcesUnavailableError: x", ("out_of_stock", None)),
        ("skypilot", 0, "Job 1: SUCCEEDED", ("ended", 0)),
        ("skypilot", 100, "Job 1: FAILED", ("failed", None)),
        ("skypilot", 101, "Job 1: RUNNING", ("running", None)),
        ("skypilot", 101, "Job 1: PENDING", ("unclear", None)),
        ("skypilot", 1, "Cluster job-2 does not exist.", ("absent", None)),
        ("dstack", 1, "Run job-2 not found", ("absent", None)),
        ("dstack", 0, '{\n  "status": "running",\n', ("running", None)),
        ("dstack", 0, '{\n  "status": "provisioning",\n', ("unclear", None)),
        ("dstack", 0, '{\n  "status": "terminated",\n', ("failed", None)),
        ("dstack", 0, '{\n  "status": "done",\n  "exit_status": 0\n', ("ended", 0)),
        ("dstack", 0, '{\n  "status": "failed",\n      "exit_status": 9\n', ("ended", 9)),
    ],
)
def test_answers_are_understood(
    name: str, code: int, printed: str, said: tuple[str, int | None]
) -> None:
    assert load_template(name).read(code, printed) == said


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.what)
def test_what_the_documentation_says_that_a_tool_answers_is_understood(sample: Sample) -> None:
    template = load_template(sample.tool)
    assert template.read(sample.code, sample.printed) == sample.said
    assert template.is_gone(sample.code, sample.printed) == sample.is_gone


def test_a_run_of_dstack_that_names_the_words_for_no_capacity_did_not_end_so() -> None:
    reason = '"termination_reason": "failed_to_start_due_to_no_capacity"'
    quoted = json.dumps({"commands": [f"echo {reason}"]}, indent=2)
    running = f'{{\n  "status": "running",\n{quoted[1:]}'
    assert load_template("dstack").read(0, running) == ("running", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("about = 1", "no template"),
        ("not toml", "no template"),
        (TEMPLATE + "[says]\nended = '('", "no template"),
        (TEMPLATE + 'needs = "x"', "no template"),
        (TEMPLATE.replace('"q", "{name}"', ""), "state is empty"),
        (TEMPLATE.replace('"q"', '"q", "{nmae}"'), "names nmae"),
        (TEMPLATE + 'poll = "soon"', "soon"),
    ],
)
def test_a_template_that_is_none_is_said_to_be(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(LocalFault, match=message):
        load_template(str(file))


def test_a_template_of_ones_own_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(TEMPLATE)
    template = load_template(str(file))
    assert template.words("start", values()) == ["sub", "job-22222222"]
    with pytest.raises(LocalFault, match="There is no template"):
        load_template("slurm")
    with pytest.raises(LocalFault, match="cannot read"):
        load_template(str(tmp_path / "none"))


def test_a_job_that_a_template_cannot_carry_is_refused() -> None:
    with pytest.raises(LocalFault, match="--image"):
        load_template("kubernetes").check(values(image=None))
    with pytest.raises(LocalFault, match="input"):
        load_template("kubernetes").check(values(input_folder="/data"))
    load_template("skypilot").check(values(input_folder="/data"))
    assert set(VALUES) == set(values())
