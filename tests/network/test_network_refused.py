"""Without rights to make namespaces shaped links are refused with the reason, and everything else works."""

import os

import pytest

from parbench.errors import MissingError
from parbench.network.build import Links
from parbench.network.keeper import refusal
from parbench.network.spelling import parse_network

SMOKE = ("digits", "--size", "smoke", "-s", "ddp", "--steps", 2, "--warmup", 1, "--parity-steps", 0, "--json")


@pytest.fixture
def no_rights(monkeypatch, tmp_path):
    fake = tmp_path / "unshare"
    fake.write_text('#!/bin/sh\necho "unshare: unshare failed: Operation not permitted" >&2\nexit 1\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.mark.usefixtures("no_rights")
def test_without_rights_links_are_refused_with_what_to_ask_for():
    with pytest.raises(MissingError, match=r"Operation not permitted.*Ask an administrator.*CAP_NET_ADMIN.*sysctl"):
        Links.make(parse_network("100mbit"), 2)
    assert "Operation not permitted" in refusal()


@pytest.mark.usefixtures("no_rights", "no_orphans")
def test_without_rights_a_run_over_shaped_links_exits_with_3_and_others_run(parbench):
    refused = parbench(*SMOKE, "--network", "100mbit")
    assert refused.code == 3
    assert "Ask an administrator" in refused.err
    assert not refused.records
    assert parbench(*SMOKE).code == 0
    assert parbench(*SMOKE, "--network", "none").code == 0


def test_missing_programs_are_named_with_their_package(monkeypatch, tmp_path):
    from parbench.network import keeper

    monkeypatch.setattr(keeper, "_found", lambda program: None if program in ("ip", "tc") else program)
    assert refusal() == "shaped links need ip, tc; install iproute2"


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ("gigabit", "no network named 'gigabit'"),
        ("40gbit", "the processor would be the limit"),
        ("rate=1gbit alpha=1us", "alpha must be from 100us"),
        ("rate=100mbit alpha=200us", "cannot be kept"),
    ],
)
def test_a_network_that_cannot_be_meant_exits_with_2(parbench, network, said):
    done = parbench(*SMOKE, "--network", network)
    assert done.code == 2
    assert said in done.err
    assert not done.records
