"""A host with our patches survives each attack, and without the one in question it does not."""

import sys

import pytest
import trio
from libp2p.network.connection.swarm_connection import SwarmConn

from p2pnode.network.libp2p_adapter import patches
from tests.live.libp2p_attacks import ATTACKS, Attack

pytestmark = pytest.mark.live

UNCURED_S = 40


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
async def test_a_patched_host_survives(attack: Attack) -> None:
    await attack()


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
async def test_the_patch_is_still_needed(attack: Attack) -> None:
    command = [sys.executable, "-m", "tests.live.libp2p_attacks", attack.__name__]
    with trio.fail_after(UNCURED_S):
        done = await trio.run_process(command, check=False, capture_stderr=True)
    assert done.returncode != 0, f"drop the patch: {attack.__name__} does no harm any more"
    _cripple, symptom = ATTACKS[attack]
    assert symptom.encode() in done.stderr


def test_applying_the_patches_again_is_harmless() -> None:
    patches.apply()
    before = SwarmConn._handle_muxed_stream
    patches.apply()
    assert SwarmConn._handle_muxed_stream is before


def test_another_version_of_the_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "LIBRARY_VERSION", "0.8.2")
    with pytest.raises(AssertionError, match=r"0\.8\.2"):
        patches.apply()
