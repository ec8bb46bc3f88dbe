"""Writes what packages of Kubernetes' releases say: `python tests/recorded/kubernetes.py FOLDER`.

The modules are pinned, and Go fetches them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

RELEASES = ("0.35.4", "0.36.3", "0.37.2")

PACKAGES = ("component-helpers/nodedeclaredfeatures/features", "component-base")

DECLARED = """package main

import (
	"fmt"

	"k8s.io/component-helpers/nodedeclaredfeatures/features"
)

func main() {
	for _, feature := range features.AllFeatures {
		fmt.Print(" ", feature.Name())
	}
	fmt.Println()
}
"""


def printed(program: str, release: str, *packages: str) -> str:
    """Return what a Go program prints that is built with packages or modules of a release."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "main.go").write_text(program)
        commands = [
            ["go", "mod", "init", "recorder"],
            # not `go mod tidy`, which asks for what only the tests of others need
            ["go", "get", *(f"k8s.io/{package}@v{release}" for package in packages)],
            ["go", "run", "."],
        ]
        for command in commands:
            done = subprocess.run(  # noqa: S603  # ours
                command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True
            )

    return done.stdout


def main() -> None:
    """Write the files."""
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    lines = [f"{release}:{printed(DECLARED, release, *PACKAGES)}" for release in RELEASES]
    (target / "declared-features.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
