"""A dockerd of our own for each module, in both ways of mapping users, and an engine on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from p2pnode.execution.docker_engine import DockerEngine
from p2pnode.execution.docker_image import ImageArchive, build_python_image
from tests.live.engine.containers import make_engine
from tests.live.engine.dockerd import Dockerd, dockerd


@pytest.fixture(scope="session")
def image() -> ImageArchive:
    return build_python_image()


@pytest.fixture(scope="module", params=[True, False], ids=["remapped", "plain"])
def daemon(request: pytest.FixtureRequest) -> Iterator[Dockerd]:
    with dockerd(remaps=request.param) as engine:
        yield engine


@pytest.fixture
async def engine(
    tmp_path: Path, daemon: Dockerd, image: ImageArchive, nursery: trio.Nursery
) -> DockerEngine:
    made = make_engine(tmp_path, daemon.socket, image)
    await nursery.start(made.run)
    await made.load(image)
    return made
