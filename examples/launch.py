#!/usr/bin/env python3
"""Start a program of several ranks, each on its own CPUs, memory and GPU of this machine.

    launch.py torchrun 8 -- python train.py
    launch.py mpirun 8 -- ./solver

The launcher starts `alignup run` once for each rank; `--part auto` reads its local rank from the
environment, cuts the machine into as many equal parts as there are ranks, and takes the rank's own.
Binding is left to alignup alone. On several hosts start this on each of them, as torchrun is: parts
are those of one machine.
"""

import argparse
import os
import shlex
import shutil

LAUNCHERS = {
    "torchrun": ["torchrun", "--no-python", "--nproc-per-node", "{ranks}"],
    "mpirun": ["mpirun", "-np", "{ranks}", "--bind-to", "none"],
}


def command_line(launcher: str, ranks: int, command: list[str], gpus: int) -> list[str]:
    """Return the words that start the ranks; `gpus` is the number for each of them."""
    start = [word.format(ranks=ranks) for word in LAUNCHERS[launcher]]
    alignup = ["alignup", "run", "--part", "auto"]
    if gpus:
        alignup += ["--device", f"nvidia.com/gpu={gpus}"]
        alignup += ["--device-resource", "nvidia.com/gpu=10de:*"]

    return [*start, *alignup, "--", *command]


def main() -> None:
    """Read the command line and become the launcher."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("launcher", choices=LAUNCHERS)
    parser.add_argument("ranks", type=int)
    parser.add_argument("command", nargs="+")
    parser.add_argument("--gpus", type=int, default=0, help="of each rank")
    parser.add_argument("--dry-run", action="store_true", help="print the command line, and end")
    options = parser.parse_args()

    command = command_line(options.launcher, options.ranks, options.command, options.gpus)
    if options.dry_run:
        print(shlex.join(command))
    elif shutil.which(command[0]) is None:
        parser.error(f"{command[0]} is not installed")
    else:
        os.execvp(command[0], command)  # noqa: S606  # the user's own words


if __name__ == "__main__":
    main()
