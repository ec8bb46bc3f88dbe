"""A client of a kube-apiserver that has made its own certificate."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

__all__ = ["ApiClient"]


class ApiClient:
    """Requests to an API server as the administrator of a kubeconfig in JSON."""

    def __init__(self, kubeconfig: str | Path) -> None:
        config = json.loads(Path(kubeconfig).read_text())
        self.url: str = config["clusters"][0]["cluster"]["server"]
        self._token = config["users"][0]["user"]["token"]
        self._tls = ssl._create_unverified_context()  # noqa: S323  # our own server on loopback

    def request(
        self, method: str, path: str, body: Any = None, kind: str = "application/json"
    ) -> tuple[int, Any]:
        """Return the status of an answer, and the object in it.

        `kind` is the body's Content-Type.
        """
        data = None
        if body is not None:
            data = json.dumps(body).encode()

        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        request = urllib.request.Request(  # noqa: S310  # ours
            self.url + path, data, headers, method=method
        )
        try:
            with urllib.request.urlopen(  # noqa: S310  # ours
                request, context=self._tls, timeout=30
            ) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            text = error.read()
            if text.startswith(b"{"):
                return error.code, json.loads(text)
            return error.code, {"message": text.decode()}

    def get(self, path: str) -> Any:
        """Return an object or a list; None: it is not there."""
        status, document = self.request("GET", path)
        if status != 200:
            return None
        return document
