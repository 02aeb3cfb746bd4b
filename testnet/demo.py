"""`p2pnode demo`: a whole network on this machine, once, in a directory that is deleted after.

So far it shows the network: six owners announce what they have, a renter sees all of it and picks
the cheapest that fits. The job that it then runs comes with the next slices.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from p2pnode.cli.client import get
from p2pnode.quantities import format_money
from testnet.offers import wait_for_offers
from testnet.plan import GpuKind, plan_network
from testnet.processes import start
from testnet.state import stop

OWNERS: Final = 6
KIND: Final = GpuKind(model="RTX 4090", vram="24564MiB", ask_micro=300_000)

Document = dict[str, Any]


def run_demo(say: Callable[[str], None]) -> Document:
    """Run it, telling each step; the document of `p2pnode demo --json`.

    Raises LocalFault if a node does not come up or does not see every offer in time.
    """
    with tempfile.TemporaryDirectory(prefix="p2pnode-demo-") as folder:
        state = Path(folder)
        plans = plan_network(state, nodes=OWNERS + 1, renters=1, kinds=(KIND,))
        began = time.monotonic()
        running = start(plans, state, name="demo", heartbeat="30s")
        try:
            say(f"{OWNERS} owners and 1 renter up as processes in {_since(began)}")
            wait_for_offers(running)
            say(f"every node sees {OWNERS} offers after {_since(began)}")
            renter = Path(running.nodes[-1].socket)
            found = get(renter, "/v1/offers", vram_mib_min=22_889)
            best = found["items"][0]
            price = format_money(best["asks"]["silver"], best["money"])
            say(f"cheapest of {len(found['items'])} that fit 24GB: {best['peer']} at {price}/gpu-h")
            network = get(renter, "/v1/status")["network"]
        finally:
            stop(running)
        say(f"all processes ended after {_since(began)}")
    return {
        "schema": "p2pnode.demo/1",
        "ok": len(found["items"]) == OWNERS,
        "nodes": len(running.nodes),
        "processes": True,
        "offers": len(found["items"]),
        "cheapest": best["peer"],
        "gpu": "simulated",
        "network": f"loopback, {network['kind']} network {network['id'][:16]}",
    }


def _since(began: float) -> str:
    return f"{time.monotonic() - began:.1f} s"
