"""The command of the campaign.

Claims what its lease says it has, and says so if somebody else has it too.

A claim is a lock on a file for each CPU and device; the kernel drops it with the process, before
anybody can see that the process is gone. So two claims of one thing at one time prove that it was
given twice.
"""

import fcntl
import os
import sys
import time
from pathlib import Path


def main():
    """Claim, hold for a while, end."""
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
    names = [
        f"gpu {device}"
        for device in os.environ.get("ALIGNUP_DEVICE_NVIDIA_COM_GPU", "").split(",")
        if device
    ]
    for part in os.environ.get("ALIGNUP_CPUS", "").split(","):
        if not part:
            continue

        first, _, last = part.partition("-")
        names += [f"cpu {cpu}" for cpu in range(int(first), int(last or first) + 1)]

    files = []
    for name in names:
        file = (folder / name).open("w")
        files.append(file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with (folder / "violations").open("a") as report:
                report.write(f"{name} for {os.environ['ALIGNUP_NAME']}\n")

    with (folder / "granted").open("a") as report:
        report.write(f"{os.environ['ALIGNUP_NAME']} {len(names)}\n")

    time.sleep(seconds)


main()
