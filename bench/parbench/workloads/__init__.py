"""Workloads: one model and its data per file; the file name is the workload's name."""
