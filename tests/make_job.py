"""Jobs to submit in tests."""

from p2pnode.jobs.jobfile import JobFile
from p2pnode.jobs.jobs import Submission
from p2pnode.node import Node
from protocol.auction import Need
from protocol.codec import encode
from protocol.job import JobLimits
from protocol.units import Micros, MillisSpan
from tests import make


def make_limits(**changes: int) -> JobLimits:
    limits = {
        "time_ms": 60_000,
        "memory_mib": 512,
        "cpus_milli": 1_000,
        "pids": 64,
        "disk_mib": 64,
        "log_bytes": 65_536,
        "output_bytes": 1_048_576,
        **changes,
    }
    return JobLimits(**limits)  # type: ignore[arg-type]


def make_submission(node: Node, **changes: object) -> Submission:
    fields: dict[str, object] = {
        "id": node.jobs.new_id(),
        "argv": ("true",),
        "variables": {},
        "image": None,
        "input": None,
        "need": Need(gpus=1, vram_mib_min=22_889),
        "tier": "silver",
        "limits": make_limits(),
        "money": "TEST",
        "ask_max": Micros(500_000),
        "total_max": None,
        "patience_ms": MillisSpan(10_000),
        **changes,
    }
    return Submission(**fields)  # type: ignore[arg-type]


def make_jobfile(**changes: object) -> JobFile:
    """A job as a renter's node keeps it, without a lease."""
    fields: dict[str, object] = {
        "id": "job-22222222",
        "created_ms": 1,
        "job": encode(make.job()),
        "need": Need(gpus=1, vram_mib_min=22_889),
        "tier": "silver",
        "span_ms": 60_000,
        "notice_ms": 0,
        "money": "TEST",
        "patience_ms": 10_000,
        "give_up_ms": 10_001,
        "moves_max": 3,
        **changes,
    }
    return JobFile(**fields)  # type: ignore[arg-type]
