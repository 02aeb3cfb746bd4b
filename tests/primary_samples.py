"""What primaries' tools answer, as their documentation and source have it.

These are samples that we wrote, not recordings: none of the tools was run for them. Kubernetes by
its documentation of Jobs, pods and kubectl's JSONPath; dstack by the source of 0.21.2; SkyPilot by
the source of its command line of early 2026.
"""

import json
from dataclasses import dataclass
from typing import Any

from p2pnode.jobs.primary_template import Said

NAME = "job-22222222"


@dataclass(frozen=True)
class Sample:
    """One answer, and what it means."""

    tool: str
    what: str
    code: int
    printed: str
    said: tuple[Said, int | None]
    is_gone: bool = False
    """Whether nothing of the job goes on there."""


def pods(
    *, kinds: str = "Job Pod", why: str = "", job: str = "", phase: str = "", code: str = ""
) -> str:
    """What kubectl prints for the fields that the template asks for; what is missing is empty."""
    return f"{kinds} {why} {job} {phase} {code}"


def run(
    status: str, *, reason: str | None = None, exit_status: int | None = None, tries: int = 1
) -> str:
    """A run as `dstack run get --json` prints it: the fields of its models, in their order."""

    def submission(number: int, why: str | None, code: int | None) -> dict[str, Any]:
        return {
            "id": "7f3f3a0e-6f0d-4f0e-9a55-3a4f1d0d2c11",
            "submission_num": number,
            "deployment_num": 0,
            "submitted_at": "2026-08-24T10:00:00Z",
            "last_processed_at": "2026-08-24T10:01:00Z",
            "finished_at": None,
            "inactivity_secs": None,
            "status": status,
            "status_message": status,
            "termination_reason": why,
            "termination_reason_message": None,
            "exit_status": code,
            "job_provisioning_data": None,
            "job_runtime_data": None,
            "error": None,
            "probes": [],
        }

    before = [
        submission(number, "failed_to_start_due_to_no_capacity", None)
        for number in range(tries - 1)
    ]
    last = submission(tries - 1, reason, exit_status)
    document = {
        "id": "0c1f0f3e-1b7e-4d0a-8d7b-0a8c1a9f3b10",
        "project_name": "main",
        "user": "admin",
        "fleet": None,
        "submitted_at": "2026-08-24T10:00:00Z",
        "last_processed_at": "2026-08-24T10:01:00Z",
        "status": status,
        "status_message": status,
        "termination_reason": "job_failed" if status == "failed" else None,
        "run_spec": {
            "run_name": NAME,
            "configuration": {"type": "task", "name": NAME, "commands": ["python3 train.py"]},
        },
        "jobs": [{"job_spec": {"job_num": 0}, "job_submissions": [*before, last]}],
        "latest_job_submission": last,
        "cost": 0.0,
        "service": None,
        "deployment_num": 0,
        "error": None,
        "deleted": None,
    }
    return json.dumps(document, indent=2) + "\n"


PLAN = f"""\
 Project          main
 User             admin
 Configuration    rentals/{NAME}/{NAME}.dstack.yml
 Type             task
 Resources        cpu=3.. mem=2GB.. disk=1GB.. gpu=RTX4090:23GB..:2

"""
LAUNCH = f"""\
Considered resources (1 node):
Launching a new cluster {NAME!r}. Proceed? [Y/n]: Y
"""

SAMPLES = (
    Sample("kubernetes", "a pod that fits nowhere", 0,
        pods(why="Unschedulable", phase="Pending"), ("out_of_stock", None)),
    Sample("kubernetes", "an image on its way", 0, pods(phase="Pending"), ("unclear", None)),
    Sample("kubernetes", "no pod yet", 0, pods(kinds="Job"), ("unclear", None)),
    Sample("kubernetes", "a pod that runs", 0, pods(phase="Running"), ("running", None)),
    Sample("kubernetes", "success", 0, pods(phase="Succeeded", code="0"), ("ended", 0)),
    Sample("kubernetes", "a program's own failure", 0,
        pods(job="Failed", phase="Failed", code="3"), ("ended", 3), is_gone=True),
    Sample("kubernetes", "an evicted pod", 0,
        pods(job="Failed", phase="Failed"), ("failed", None), is_gone=True),
    Sample("kubernetes", "a job whose time is over", 0,
        pods(kinds="Job", job="Failed"), ("failed", None), is_gone=True),
    Sample("kubernetes", "no such job", 0, pods(kinds=""), ("absent", None), is_gone=True),
    Sample("kubernetes", "no cluster", 1,
        "Unable to connect to the server: dial tcp 192.0.2.1:6443: i/o timeout\n",
        ("refused", None)),
    Sample("kubernetes", "a job that may not be made", 1,
        'Error from server (Forbidden): error when creating "job.yml": jobs.batch is forbidden: '
        "exceeded quota: compute, requested: count/jobs.batch=1, used: count/jobs.batch=4, "
        "limited: count/jobs.batch=4\n", ("refused", None)),
    Sample("kubernetes", "what was sent", 0, f"job.batch/{NAME} created\n", ("unclear", None)),
    Sample("dstack", "what was sent", 0,
        f"{PLAN}Run {NAME} submitted, detaching...\n", ("unclear", None)),
    Sample("dstack", "no offers", 0,
        f"{PLAN}No matching instance offers available. Possible reasons: \n"
        f"https://dstack.ai/docs/guides/troubleshooting/#no-offers\n\n"
        f"Run {NAME} submitted, detaching...\n", ("out_of_stock", None)),
    Sample("dstack", "no fleets", 0,
        f"{PLAN}The project has no fleets. Create one before submitting a run.\n",
        ("out_of_stock", None)),
    Sample("dstack", "the same again", 0,
        f"{PLAN}Active run {NAME} already exists. Detected no changes.\n"
        "Use --force to apply anyway.\n", ("unclear", None)),
    Sample("dstack", "no server", 1,
        "Failed to connect to dstack server http://127.0.0.1:3000\n", ("refused", None)),
    Sample("dstack", "a run that waits", 0, run("submitted"), ("unclear", None)),
    Sample("dstack", "a run that is prepared", 0, run("provisioning"), ("unclear", None)),
    Sample("dstack", "a run that runs", 0, run("running"), ("running", None)),
    Sample("dstack", "a run that is being stopped", 0, run("terminating"), ("unclear", None)),
    Sample("dstack", "success", 0,
        run("done", reason="done_by_runner", exit_status=0), ("ended", 0), is_gone=True),
    Sample("dstack", "a program's own failure", 0,
        run("failed", reason="container_exited_with_error", exit_status=3),
        ("ended", 3), is_gone=True),
    Sample("dstack", "no capacity", 0,
        run("failed", reason="failed_to_start_due_to_no_capacity"),
        ("out_of_stock", None), is_gone=True),
    Sample("dstack", "a spot instance taken back", 0,
        run("failed", reason="interrupted_by_no_capacity"), ("out_of_stock", None), is_gone=True),
    Sample("dstack", "a failure after a try without capacity", 0,
        run("failed", reason="container_exited_with_error", exit_status=3, tries=2),
        ("ended", 3), is_gone=True),
    Sample("dstack", "a stopped run", 0,
        run("terminated", reason="terminated_by_user"), ("failed", None), is_gone=True),
    Sample("dstack", "an image that does not start", 0,
        run("failed", reason="creating_container_error"), ("failed", None), is_gone=True),
    Sample("dstack", "no such run", 1, f"Run {NAME} not found\n", ("absent", None), is_gone=True),
    Sample("skypilot", "no capacity anywhere", 1,
        f"{LAUNCH}sky.exceptions.ResourcesUnavailableError: Failed to provision all possible "
        "launchable resources. Relax the task's resource requirements: 1x AWS({'H100': 8})\n",
        ("out_of_stock", None)),
    Sample("skypilot", "a GPU that no cloud has", 1,
        "sky.exceptions.ResourcesUnavailableError: Catalog does not contain any instances "
        "satisfying the request:\n1x GCP({'RTX4090': 2})\n", ("out_of_stock", None)),
    Sample("skypilot", "no server", 1,
        "sky.exceptions.ApiServerConnectionError: Could not connect to SkyPilot API server at "
        "http://127.0.0.1:46580. Please ensure that the server is running.\n", ("unclear", None)),
    Sample("skypilot", "a job that waits", 101, "Job 1: PENDING\n", ("unclear", None)),
    Sample("skypilot", "a job that is set up", 101, "Job 1: SETTING_UP\n", ("running", None)),
    Sample("skypilot", "a job that runs", 101, "Job 1: RUNNING\n", ("running", None)),
    Sample("skypilot", "success", 0, "Job 1: SUCCEEDED\n", ("ended", 0)),
    Sample("skypilot", "failure", 100, "Job 1: FAILED\n", ("failed", None), is_gone=True),
    Sample("skypilot", "a failed set-up", 100,
        "Job 1: FAILED_SETUP\n", ("failed", None), is_gone=True),
    Sample("skypilot", "a cancelled job", 103,
        "Job 1: CANCELLED\n", ("failed", None), is_gone=True),
    Sample("skypilot", "no such job", 102,
        "Job 1: None\nJob 1 not found\n", ("absent", None), is_gone=True),
    Sample("skypilot", "no such cluster", 1,
        f"sky.exceptions.ClusterDoesNotExist: Cluster {NAME!r} does not exist.\n",
        ("absent", None), is_gone=True),
)  # fmt: skip
