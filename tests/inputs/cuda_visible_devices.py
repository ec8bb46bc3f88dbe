"""Forms of CUDA_VISIBLE_DEVICES on a machine with one GPU, and how many GPUs its driver shows."""

from __future__ import annotations

WRAPPED = "4294967296"
"""What the driver takes for GPU 0, and torch and `bind` for none."""


def forms(uuid):
    """Return by form how many GPUs the driver shows, where the only one has this UUID.

    Asked of one H200 (driver 580.159, torch 2.11).
    """
    agreed = {
        # what the driver and torch agree on
        "": 0,
        "0": 1,
        "1": 0,
        "-1": 0,
        "0,-1": 1,
        "-1,0": 0,
        "0,1": 1,
        "1,0": 0,
        "0,0": 0,
        uuid: 1,
        uuid[:12]: 1,
        uuid[:6]: 1,
        uuid.lower(): 0,
        uuid[4:]: 0,
        f"{uuid},{uuid}": 0,
        f"{uuid},0": 1,
        f"0,{uuid}": 1,
        f"MIG-{uuid[4:]}": 1,
        f"MIG-{uuid}/1/0": 0,
        "GPU-00000000-0000": 0,
        " 0": 1,
        "0 ": 1,
        "0 ,1": 1,
        "00": 1,
        "+0": 1,
        "0x0": 1,
        "0;1": 1,
        "0abc": 1,
        "a": 0,
        "all": 0,
        "none": 0,
        "void": 0,
        "NoDevFiles": 0,
        ",0": 0,
        "0,": 1,
        f" {uuid}": 0,
        "0\n": 1,
        "2147483648": 0,
        "0000:00:06.0": 1,
        "cuda:0": 0,
        "9" * 2624: 0,
        "0" * 2624: 1,
    }
    # where they differ, the driver decides, but for a number that it wraps
    of_driver = {
        "GPU-": 0,
        uuid[:4] + uuid[4:].upper(): 1,
        f"{uuid}+x": 1,
        f"{uuid}::0": 1,
        f"{uuid}::2": 1,
        f"{uuid} ": 1,
        WRAPPED: 0,
    }
    return agreed | of_driver
