#!/usr/bin/env python3
"""An admission webhook that warns of pods that no node of the cluster can align, even empty.

    admission_webhook.py nodes.jsonl --listen 0.0.0.0:8443 --certificate tls.crt --key tls.key

`kubectl apply` prints the warning; the pod is created all the same. Register it as a
ValidatingWebhookConfiguration with `failurePolicy: Ignore`, for CREATE of pods and of what makes
them.
"""

from __future__ import annotations

import argparse
import json
import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from alignup import AlignupError, Cluster, explain, read_pod

LONGEST = 250
"""Letters of a warning; the API server cuts off what is longer than 256."""


def warning(cluster: Cluster, manifest: dict[str, Any]) -> str:
    """Return why no empty node could align the pods of an object.

    Empty: a node can, or the object has none.
    """
    template = manifest
    if manifest.get("kind") != "Pod":
        template = manifest.get("spec", {}).get("template")
    if not template:
        return ""

    try:
        pod = read_pod({**template, "metadata": {**template.get("metadata", {}), "name": "pod"}})
        if len(cluster.evaluate(pod).best(1)):
            return ""
        cause = explain(cluster.nodes[0], pod, suggest=False).cause
    except AlignupError as error:
        return f"alignup: {error}"[:LONGEST]

    return f"alignup: no node can align it; {cause}"[:LONGEST]


def reviewed(cluster: Cluster, review: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to an AdmissionReview."""
    sentence = warning(cluster, review["request"].get("object") or {})
    response: dict[str, Any] = {"uid": review["request"]["uid"], "allowed": True}
    if sentence:
        response["warnings"] = [sentence]
    return {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}


def made_server(cluster: Cluster, host: str, port: int) -> ThreadingHTTPServer:
    """Return a server that answers reviews."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = json.dumps(reviewed(cluster, review)).encode()
            except (ValueError, KeyError, TypeError, AttributeError):
                self.send_error(400)
                return

            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    return ThreadingHTTPServer((host, port), Handler)


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("nodes")
    parser.add_argument("--listen", default="127.0.0.1:8443")
    parser.add_argument("--certificate")
    parser.add_argument("--key")
    options = parser.parse_args()

    host, _, port = options.listen.rpartition(":")
    cluster = Cluster.from_json_lines(Path(options.nodes).read_bytes(), options.nodes)
    server = made_server(cluster, host, int(port))

    if options.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.certificate, options.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)

    server.serve_forever()


if __name__ == "__main__":
    main()
