"""Talks to a running node over its unix socket, with the standard library alone."""

import http.client
import json
import socket
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlencode

from protocol.errors import LocalFault, Unavailable

REPLY_S = 30


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=REPLY_S)
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
    return _request(node, "GET", path, None)


def post(node: Path, path: str, document: object) -> Any:
    """The answer to a document that is posted. Raises as `get`."""
    return _request(node, "POST", path, json.dumps(document))


def get_bytes(node: Path, path: str) -> bytes:
    """The bytes at this path. Raises as `get`."""
    status, body = _exchange(node, "GET", path, None)
    if status != 200:
        _raise(status, json.loads(body or b"null"))
    return body


def _request(node: Path, method: str, path: str, body: str | None) -> Any:
    status, raw = _exchange(node, method, path, body)
    try:
        document = json.loads(raw or b"null")
    except ValueError as error:
        raise Unavailable(f"no node answers on {node}, but something else") from error
    if status >= 400:
        _raise(status, document)
    return document


def _exchange(node: Path, method: str, path: str, body: str | None) -> tuple[int, bytes]:
    connection = _UnixConnection(node)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        return reply.status, reply.read()
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"no node answers on {node}: {error}") from error
    finally:
        connection.close()


def _raise(status: int, document: Any) -> NoReturn:
    if status >= 500 or not isinstance(document, dict):
        raise Unavailable(f"the node failed: {document}")
    raise LocalFault(document.get("title", str(document)), document.get("cure", ""))
