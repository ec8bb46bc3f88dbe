"""`python -m alignup`: the command line of `alignup.cli`."""

from __future__ import annotations

from alignup.cli import main

if __name__ == "__main__":
    main()
