"""CUDA_VISIBLE_DEVICES in all its forms; boards are told by bus address, never by number."""

import pytest

from parbench.visible import Board, seen

# NVML's numbers are in no order of the bus here: only the address may decide.
BOARDS = [
    Board(index=0, uuid="GPU-cc", bus_id="00000000:C0:00.0", name="NVIDIA H200"),
    Board(index=1, uuid="GPU-aa", bus_id="00000000:A0:00.0", name="NVIDIA H200"),
    Board(index=2, uuid="GPU-dd", bus_id="00000000:D0:00.0", name="NVIDIA H200", parts=("MIG-d1", "MIG-d2")),
    Board(index=3, uuid="GPU-bb", bus_id="00000000:B0:00.0", name="NVIDIA H200"),
]


@pytest.mark.parametrize(
    ("visible", "buses"),
    [
        (None, "A0 B0 C0 D0"),
        ("", ""),
        ("-1", ""),
        ("NoDevFiles", ""),
        ("2,3", "C0 D0"),
        ("3,0", "D0 A0"),
        (" 1 , 2 ", "B0 C0"),
        ("0,9,1", "A0"),
        ("0,-1,1", "A0"),
        ("GPU-bb", "B0"),
        ("GPU-cc,GPU-a", "C0 A0"),
        ("GPU-", ""),
        ("GPU-zz,0", ""),
        ("MIG-d2", "D0"),
        ("MIG-d", ""),
        ("MIG-GPU-dd/1/0", "D0"),
        ("1,GPU-dd,MIG-d1", "B0 D0 D0"),
    ],
)
def test_each_form_reads_the_right_boards(visible, buses):
    found = seen(BOARDS, visible)
    assert [one.board.bus_id[9:11] for one in found] == buses.split()


def test_parts_are_known_as_parts():
    assert [one.part for one in seen(BOARDS, "0,GPU-dd,MIG-d1")] == [False, True, True]


def test_numbers_of_unlike_boards_are_not_guessed():
    mixed = [*BOARDS, Board(index=4, uuid="GPU-ee", bus_id="00000000:E0:00.0", name="NVIDIA L4")]
    for visible in (None, "0,1"):
        assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in seen(mixed, visible)
    assert len(seen(mixed, None, "PCI_BUS_ID")) == 5
    assert seen(mixed, "GPU-ee")[0].board.index == 4
