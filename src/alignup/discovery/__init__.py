"""Where `Machine` records come from: the kernel's files, snapshots of them, JSON, hwloc's XML, a catalog."""
