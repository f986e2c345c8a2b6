"""The lines of meters: what was measured with its units, and nothing where nothing was."""

from pathlib import Path

import msgspec

from parbench.observed import Flops, MemoryUse, Power, Reading, Weighed
from parbench.recordfile import read_record
from parbench.report.meters import meter_lines

MIB = 2**20
PLAIN = read_record(Path(__file__).parent.parent / "records" / "record-1.0.json")


def text(**changes):
    return "\n".join(line.plain for line in meter_lines(msgspec.structs.replace(PLAIN, **changes)))


def test_a_record_from_before_there_were_meters_has_no_lines():
    assert text() == ""


def test_memory_has_parts_phases_every_rank_and_the_closed_form():
    ranks = tuple(Weighed(peak_bytes=peak * MIB, phases={"build": 10 * MIB}) for peak in (70, 80))
    parts = {"parameters": 30 * MIB, "other": 50 * MIB}
    use = MemoryUse(
        rank=1,
        ranks=ranks,
        parts=parts,
        unexplained_bytes=-2 * MIB,
        predicted_bytes=60 * MIB,
        difference_bytes=20 * MIB,
    )
    found = text(memory=use)
    assert "memory at the peak of rank 1: parameters 30.0 MiB, other 50.0 MiB; in all 80.0 MiB" in found
    assert "most by phase: build 10.0 MiB" in found
    assert "by rank: 70.0 MiB, 80.0 MiB" in found
    assert "closed form of states: 60.0 MiB, 20.0 MiB more at the peak; 2.00 MiB less than the storages" in found
    assert text(memory=MemoryUse(reason="left out")) == ""


def test_flops_have_shares_and_what_is_computed_again():
    found = text(flops=Flops(samples=8, model={"aten::mm": 300, "aten::bmm": 100}, hardware={"aten::mm": 500}))
    assert found == "FLOPs of 8 samples: 400 (aten::mm 75%, aten::bmm 25%); 25.0% computed again"


def test_every_board_has_a_line_with_what_explains_it():
    board = Reading(
        name="NVIDIA H200",
        id="x",
        index=3,
        scope="GPU board",
        energy_j=600.0,
        counter_j=600.0,
        integral_j=590.0,
        window_s=2.0,
        limit_w=700.0,
        idle_w=75.5,
        clocks_mhz=(1170, 1980),
        others=0,
    )
    silent = Reading(name="a\x1bb", id="y", scope="GPU board", reason="power could not be read")
    lines = text(power=Power(boards=(board, silent))).splitlines()
    assert lines[0] == (
        "NVIDIA H200 3 on host 0 (GPU board): 300 W over 2.00 s; counter 600.0 J, integral of power 590.0 J; "
        "idle 75.5 W, limit 700 W, clocks 1170-1980 MHz, other processes 0"
    )
    assert lines[1] == "a\\x1bb on host 0: no energy, power could not be read"


def test_the_cost_of_the_loop_and_the_neighbours_are_told():
    found = text(launch={"harness_s_per_step": 12e-6, "neighbour_cores": 0.25})
    assert found.splitlines() == [
        "the timed loop alone: 12.0 µs per step",
        "other processes during the timed rounds: 0.25 cores",
    ]
