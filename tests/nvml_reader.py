"""Runs the real pynvml over the fake library in a process of its own, since it loads once.

Input: JSON lines, each a state for the fake and how often to read then. Output: a line for each.
"""

import json
import os
import sys
from pathlib import Path

import trio
import trio.testing

from p2pnode.execution.nvml_probe import NvmlProbe
from protocol.errors import Unavailable
from protocol.units import PublicKey


async def read(probe: NvmlProbe) -> dict[str, object]:
    """What the probe says, or that it is unavailable, with its problems."""
    try:
        gpus = await probe.read()
    except Unavailable as error:
        return {"unavailable": str(error), "problems": probe.problems, "gpus": []}
    return {
        "problems": probe.problems,
        "gpus": [
            {
                "unit": gpu.unit.hex(),
                "model": gpu.model,
                "vram": gpu.vram,
                "source": gpu.source,
                "beside": gpu.beside,
                "driver": gpu.driver,
                "compute": gpu.compute,
                "device": gpu.device,
            }
            for gpu in gpus
        ],
    }


async def look(probe: NvmlProbe) -> dict[str, object]:
    """What the probe says that the GPUs do."""
    try:
        uses = await probe.use()
    except Unavailable as error:
        return {"unavailable": str(error)}
    return {
        "uses": [
            {
                "unit": use.unit.hex(),
                "load_ppm": use.load_ppm,
                "processes": use.processes,
                "memory": use.memory,
            }
            for use in uses
        ]
    }


def prepare(state: Path, content: str | None) -> None:
    """Let the fake see this state from now on, or none at all."""
    if content is None:
        state.unlink()
        return
    scratch = state.with_suffix(".new")
    scratch.write_text(content)
    scratch.replace(state)


async def main() -> None:
    """Answer each line of the input."""
    feed = PublicKey(bytes.fromhex(os.environ["FEED"]))
    probe = NvmlProbe(feed, pci=Path(os.environ["FAKE_PCI"]))
    for line in sys.stdin:
        step = json.loads(line)
        prepare(Path(os.environ["FAKE_NVML"]), step["state"])
        while step.get("until_idle") and probe._hands.borrowed_tokens:
            # The hung thread sees the new state in wall time, which the test's clock does not tell.
            await trio.to_thread.run_sync(os.sched_yield)
        said = await (look if step.get("look") else read)(probe)
        sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    # A hung thread leaves nothing to do, so that the deadline is jumped to.
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.3))
