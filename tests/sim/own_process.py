"""Runs a simulation in a process of its own, which must load neither libp2p nor a web server."""

import os
import subprocess
import sys


def printed(*arguments: str, hash_seed: str) -> str:
    """What `p2pnode testnet` with these arguments prints, by a Python with this hash seed."""
    code = (
        "import sys; from p2pnode.cli import main\n"
        "sys.argv[:] = ['p2pnode', 'testnet', *sys.argv[1:]]\n"
        "try: main()\n"
        "finally: assert 'libp2p' not in sys.modules; assert 'litestar' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
