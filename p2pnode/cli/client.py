"""Talks to a running node over its unix socket, with the standard library alone."""

import http.client
import json
import socket
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlencode

from protocol.errors import LocalFault, Unavailable

REPLY_S = 30
"""For what a node answers at once."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, patience_s: int | None) -> None:
        super().__init__("localhost", timeout=patience_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def get(node: Path, path: str, **query: object) -> Any:
    """The document at this path of the API; `query` values that are None are left out.

    Raises Unavailable if no node answers on the socket, LocalFault if it says that we erred.
    """
    wanted = {key: value for key, value in query.items() if value is not None}
    if wanted:
        path = f"{path}?{urlencode(wanted, doseq=True)}"
    return _request(node, ("GET", path, None), REPLY_S)


def get_slow(node: Path, path: str) -> Any:
    """As `get`, of what takes the node long: waits until it answers or ends."""
    return _request(node, ("GET", path, None), None)


def post(node: Path, path: str, document: object) -> Any:
    """The answer to a document that is posted. Raises as `get`."""
    return _request(node, ("POST", path, json.dumps(document)), REPLY_S)


def post_slow(node: Path, path: str, document: object) -> Any:
    """As `post`, of what takes the node long: waits until it answers or ends."""
    return _request(node, ("POST", path, json.dumps(document)), None)


def get_log(node: Path, job: str, offset: int) -> tuple[int, bytes]:
    """A piece of a job's log and its offset: the one asked for, or the next that was kept.

    Empty at the end. Raises as `get`.
    """
    reply, body = _exchange(node, ("GET", f"/v1/jobs/{job}/log?offset={offset}", None), REPLY_S)
    if reply.status != 200:
        _raise(reply.status, json.loads(body or b"null"))
    return int(reply.headers["Log-Offset"]), body


def get_bytes(node: Path, path: str) -> bytes:
    """A file of the node's, whole. Raises as `get`."""
    reply, body = _exchange(node, ("GET", path, None), REPLY_S)
    if reply.status != 200:
        _raise(reply.status, json.loads(body or b"null"))
    return body


_Request = tuple[str, str, str | None]
"""Method, path, body."""


def _request(node: Path, request: _Request, patience_s: int | None) -> Any:
    reply, raw = _exchange(node, request, patience_s)
    try:
        document = json.loads(raw or b"null")
    except ValueError as error:
        raise Unavailable(f"no node answers on {node}, but something else") from error
    if reply.status >= 400:
        _raise(reply.status, document)
    return document


def _exchange(
    node: Path, request: _Request, patience_s: int | None
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = _UnixConnection(node, patience_s)
    method, path, body = request
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        return reply, reply.read()
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"no node answers on {node}: {error}") from error
    finally:
        connection.close()


def _raise(status: int, document: Any) -> NoReturn:
    if status >= 500 or not isinstance(document, dict):
        raise Unavailable(f"the node failed: {document}")
    raise LocalFault(document.get("title", str(document)), document.get("cure", ""))
