"""The calls of Docker that we make; only this module talks to it."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import docker
from docker.errors import APIError, DockerException, NotFound
from docker.types import CancellableStream

from p2pnode.execution.docker_container import (
    LABEL_NODE,
    LABEL_RUN,
    Ground,
    Json,
    check_made_as_asked,
)
from p2pnode.execution.docker_ground import API, read_ground
from p2pnode.execution.docker_run import Chunks
from protocol.errors import LocalFault, Unavailable

CALL_S: Final = 60
"""The longest silence in one call of Docker; what is slower counts as no answer."""

T = TypeVar("T")


class Docker:
    """The calls of Docker that we make; each blocks.

    Raises LocalFault if Docker refuses, Unavailable if it does not answer.
    """

    def __init__(self, path: Path) -> None:
        self._socket = path
        self._api: Any = docker.APIClient(f"unix://{path}", version=API, timeout=CALL_S)

    def ground(self) -> Ground:
        """The self-check. Raises LocalFault if jobs must not be run with this engine."""
        with self._asking():
            info, version = self._api.info(), self._api.version(api_version=False)
        ground = read_ground(info, version, user=os.geteuid(), group=os.getegid())
        # Podman and others take a runtime that does not exist, and so perhaps other things.
        probe = {"Image": f"sha256:{'0' * 64}", "HostConfig": {"Runtime": "no-such-xyz"}}
        try:
            made = self._api.create_container_from_config(probe)
        except APIError as error:
            if error.status_code == 400 and "no-such-xyz" in str(error.explanation):
                return ground
        except OSError as error:
            raise Unavailable(f"the container engine does not answer: {error}") from error
        else:
            self.remove(made["Id"])
        raise LocalFault(
            "the container engine ignores what it does not understand, so it enforces nothing",
            "run Docker itself, not podman, on the socket",
        )

    def close(self) -> None:
        """No connection is kept; the next call makes a new one."""
        self._api.close()

    def image(self, image: str) -> Json | None:
        """What is known of the image; None if it is not here."""
        with self._asking():
            return _if_there(self._api.inspect_image, image)

    def images(self) -> list[Json]:
        """What is known of all images that are here, newest first."""
        with self._asking():
            found: list[Json] = self._api.images()
        return sorted(found, key=lambda image: -int(image.get("Created") or 0))

    def load(self, archive: bytes) -> None:
        """The image is here."""
        with self._asking():
            for line in self._api.load_image(archive):
                if "error" in line:
                    raise LocalFault(f"the image cannot be loaded: {line['error']}")

    def inspect(self, name: str) -> Json | None:
        """What is known of the container; None if there is none."""
        with self._asking():
            return _if_there(self._api.inspect_container, name)

    def create(self, name: str, asked: Json) -> None:
        """The container is there, not started; raises LocalFault if it is not what was asked."""
        with self._asking():
            self._api.create_container_from_config(asked, name)
        try:
            check_made_as_asked(asked, self.inspect(name) or {})
        except LocalFault:
            self.remove(name)
            raise

    def start(self, name: str) -> None:
        """The container runs, or did; nothing happens if it does. Raises LocalFault: it is gone."""
        try:
            with self._asking():
                self._api.start(name)
        except LocalFault:
            self.remove(name)
            raise

    def kill(self, name: str, signal: str) -> None:
        """Signal the container; nothing happens if it is over or gone."""
        with self._asking():
            try:
                self._api.kill(name, signal)
            except APIError as error:
                if error.status_code not in {404, 409}:
                    raise

    def remove(self, name: str) -> None:
        """There is no such container; nothing of it goes on."""
        with self._asking():
            _if_there(partial(self._api.remove_container, v=True, force=True), name)

    def runs(self, node: str) -> list[str]:
        """The ids of this node's runs that have a container."""
        with self._asking():
            found = self._api.containers(all=True, filters={"label": f"{LABEL_NODE}={node}"})
        return sorted(each["Labels"][LABEL_RUN] for each in found)

    def open_log(self, name: str, since: str, *, follow: bool) -> Chunks | None:
        """(chunks, close): the log in frames; `close` ends a read that waits in another thread.

        None if there is no such container.
        """
        options = {"stdout": 1, "stderr": 1, "timestamps": 1, "follow": int(follow), "since": since}
        # docker-py's own call drops the frames, with which the instants would be lost.
        url = f"{self._api.base_url}/v{API}/containers/{name}/logs"
        with self._asking():
            response = self._api.get(url, params=options, stream=True, timeout=(CALL_S, None))
        if response.status_code == 200:
            return _chunks(response), partial(_shut, response)
        response.close()
        if response.status_code == 404:
            return None
        raise Unavailable(f"no log of {name}: HTTP {response.status_code}")

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Around each call; see the class for what is raised."""
        try:
            # Docker-py leaks the socket of a connection that fails, so it is tried here first.
            with socket.socket(socket.AF_UNIX) as trial:
                trial.settimeout(CALL_S)
                trial.connect(str(self._socket))
            yield
        except APIError as error:
            if error.status_code == 409:
                raise Unavailable(f"the container engine is at it: {error.explanation}") from error
            what = f"the container engine refuses: {error.explanation or error}"
            raise LocalFault(what) from error
        except (OSError, DockerException) as error:
            raise Unavailable(f"the container engine does not answer: {error}") from error


def _if_there(call: Callable[[str], T], name: str) -> T | None:
    try:
        return call(name)
    except NotFound:
        return None


def _chunks(response: Any) -> Iterator[bytes]:  # noqa: ANN401 - docker-py has no types
    try:
        yield from response.iter_content(None)
    finally:
        response.close()


def _shut(response: Any) -> None:  # noqa: ANN401 - docker-py has no types
    # It reaches for the socket through three layers, which are gone where the stream has ended.
    with suppress(OSError, AttributeError):
        CancellableStream(None, response).close()
