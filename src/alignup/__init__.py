"""Decide which NUMA nodes, CPUs, memory and devices a workload gets, as the Kubernetes Topology Manager would."""

from __future__ import annotations
