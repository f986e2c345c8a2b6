"""Probes: one meter per file; the file name is the probe's name."""
