"""The laws every strategy, compressor, workload and probe obeys; importable by outsiders for their own plug-ins' tests.

from parbench.conformance import check_strategy

def test_my_strategy():
verdict = check_strategy("my_strategy", world_size=2, plugins=["my_strategy.py"])
assert verdict.passed, verdict.broken
"""

from parbench.conformance.checks import check_compressor, check_probe, check_strategy, check_workload
from parbench.conformance.findings import Finding, Verdict

__all__ = ["Finding", "Verdict", "check_compressor", "check_probe", "check_strategy", "check_workload"]
