"""Boards read through the real nvidia-ml-py from a scripted libnvidia-ml.so.1: a board per fault, a second's window."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from parbench.nvml import Nvml
from parbench.observed import Reading

HERE = Path(__file__).parent

FAULTS = """count 8
0 power 0:100,0.5:300
1 power 0:100,0.5:300
1 fail energy 3 0 0
2 fail energy 3 0 0
2 fail instant 3 0 0
2 fail averaged 3 0 0
2 fail power 4 0 0
3 power 0:100,0.5:300
3 back 0.8
4 power 0:300
4 scale 0.57
5 power 0:100,0.5:300
5 fail instant 3 0 0
5 fail energy 3 0 0
5 average 1
6 name NVIDIA GH200 480GB
6 fail fields 3 0 0
7 power 0:300
7 fail energy 10 5 1
7 fail instant 10 7 1
"""
STATES = """count 7
0 clock 1170
0 reasons 64
1 clock 1400
1 reasons 5
1 limit 400
2 pids 1,999999
3 power 0:300
3 fail energy 10 3 20
3 fail instant 10 3 20
4 mig MIG-aaaa
4 mig MIG-bbbb
5 clock 1980
5 reasons 1
6 fail pids 4 0 0
6 fail limit 3 0 0
6 fail clock 3 0 0
6 fail temperature 3 0 0
6 fail reasons 3 0 0
6 fail memory 3 0 0
"""
EDGE = """count 3
0 power 0:100,0.6:300,1.8:50
0 period 0.1
1 power 0:100,0.6:300,1.8:50
1 fail energy 3 0 0
2 power 0:60,0.6:700,1.8:60
"""
CASES = {
    "faults": {"script": FAULTS, "window": [0.6, 1.6]},
    "states": {"script": STATES, "window": [0.1, 1.1]},
    "edge": {"script": EDGE, "window": [0.6, 1.8]},
    "short": {"script": "count 1\n0 period 0.1\n", "window": [0.1, 0.5]},
    "lost": {"script": "count 2\n1 fail energy 15 5 0\n", "window": [0.1, 0.4]},
    "mismatch": {"script": "init 18\n", "window": [0, 0]},
    "no driver": {"script": "init 9\n", "window": [0, 0]},
    "one lost before": {"script": "count 2\n0 fail handle 15 0 0\n", "window": [0.1, 0.3]},
}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The fake library, compiled."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to build the fake libnvidia-ml.so.1 with")
    folder = tmp_path_factory.mktemp("nvml")
    built = [compiler, "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", folder / "libnvidia-ml.so.1"]
    subprocess.run([*built, HERE / "fake_nvml.c"], check=True, timeout=60)
    return folder


@pytest.fixture(scope="module")
def found(library):
    """What every case gives, read in one process."""
    done = subprocess.run(
        [sys.executable, HERE / "read_boards.py"],
        input=json.dumps(list(CASES.values())),
        env={**os.environ, "LD_LIBRARY_PATH": str(library)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout), strict=True))


def readings(found, case):
    return [msgspec.convert(one, Reading) for one in found[case]["readings"]]


def test_a_healthy_board_gives_the_difference_of_its_counter_with_the_integral_beside_it(found):
    one = readings(found, "faults")[0]
    assert (one.source, one.field, one.scope, one.reason, one.estimated) == (
        "counter",
        "instant",
        "GPU board",
        None,
        None,
    )
    assert one.energy_j == one.counter_j == pytest.approx(300, rel=0.02)
    assert one.integral_j == pytest.approx(300, rel=0.02)
    assert (one.limit_w, one.clocks_mhz, one.temperatures_c, one.others) == (700, (1980, 1980), (40, 40), 0)


def test_without_a_counter_power_is_integrated(found):
    """G3: boards before Volta, and Tegra."""
    one = readings(found, "faults")[1]
    assert (one.source, one.counter_j) == ("integral", None)
    assert one.energy_j == pytest.approx(300, rel=0.02)


def test_with_neither_there_is_a_reason_and_no_number(found):
    one = readings(found, "faults")[2]
    assert (one.energy_j, one.field) == (None, "none")
    assert "no energy counter" in one.reason
    assert "energy counter: the driver does not support it" in one.reason
    assert "power: this user has no permission" in one.reason


def test_a_counter_that_starts_again_is_discarded(found):
    """G7: the difference would be 100 kJ short."""
    one = readings(found, "faults")[3]
    assert (one.source, one.counter_j) == ("integral", None)
    assert one.energy_j == pytest.approx(300, rel=0.02)


def test_a_wrong_counter_differs_from_the_integral(found):
    """G7: 187 J and 327 J for the same five seconds have been seen (zeus#181)."""
    one = readings(found, "faults")[4]
    assert one.counter_j == pytest.approx(171, rel=0.02)
    assert one.integral_j == pytest.approx(300, rel=0.02)


def test_power_averaged_over_a_second_makes_a_window_of_a_second_an_estimate(found):
    """G8: the average still remembers 100 W; the number is low, and says that it is an estimate."""
    one = readings(found, "faults")[5]
    assert (one.source, one.field, one.period_s) == ("integral", "average", 1.0)
    assert one.energy_j < 295
    assert "shorter than 10 periods of 1 s" in one.estimated


def test_power_of_a_module_says_so(found):
    """G12: where GPU and processor cannot be told apart."""
    assert readings(found, "faults")[6].scope == "GPU module (CPU and GPU)"


def test_a_reading_that_fails_leaves_a_gap_and_ends_nothing(found):
    """G4."""
    one = readings(found, "faults")[7]
    assert one.energy_j == pytest.approx(300, rel=0.02)
    assert one.missed < 0.1
    assert one.readings > 20


def test_too_many_gaps_make_energy_unavailable(found):
    """G4: neither counter nor power could be read for most of the window's first half."""
    one = readings(found, "states")[3]
    assert one.energy_j is None
    assert "could not be read" in one.reason
    assert one.missed > 0.1


def test_a_lost_board_ends_the_rank(found):
    """G4: nothing on it can go on."""
    assert "is lost" in found["lost"]["lost"]
    assert "20:00.0" in found["lost"]["lost"]


def test_a_board_that_was_lost_before_is_left_out(found):
    (one,) = readings(found, "one lost before")
    assert one.index == 1


@pytest.mark.parametrize(
    ("case", "words"), [("mismatch", "reboot, or reload the driver"), ("no driver", "is not loaded")]
)
def test_a_driver_that_does_not_answer_is_told_with_what_to_do(found, case, words):
    """G2."""
    assert words in found[case]["reason"]


def test_without_the_library_there_is_a_sentence():
    """G1: the real nvidia-ml-py, here, where there is no driver."""
    opened = Nvml.open()
    if isinstance(opened, Nvml):
        pytest.skip("this machine has NVML")
    assert opened.startswith(("NVML library not found", "the NVIDIA driver is not loaded"))


def test_clocks_that_are_held_down_are_noted_with_their_reason(found):
    """G10: heat and a cap of power are told apart; a board that idles is not throttled."""
    heat, cap, idle = (readings(found, "states")[k] for k in (0, 1, 5))
    assert (heat.throttled, heat.clocks_mhz, heat.most_clock_mhz) == (
        ("hardware thermal slowdown",),
        (1170, 1170),
        1980,
    )
    assert (cap.throttled, cap.limit_w, cap.default_limit_w) == (("software power cap",), 400, 700)
    assert idle.throttled == ()


def test_other_processes_on_the_board_are_counted(found):
    """G11."""
    assert readings(found, "states")[2].others == 2


def test_a_part_of_a_board_has_the_power_of_all_of_it(found):
    """G5."""
    one = readings(found, "states")[4]
    assert one.slice
    assert "not of the part" in one.estimated


def test_a_board_that_tells_nothing_but_power_has_power(found):
    one = readings(found, "states")[6]
    assert one.energy_j == pytest.approx(100, rel=0.02)
    assert (one.limit_w, one.clocks_mhz, one.temperatures_c, one.others, one.used_bytes) == (None, (), (), None, None)


@pytest.mark.parametrize("board", [0, 1, 2])
def test_a_step_of_power_at_both_edges_of_the_window_stays_outside(found, board):
    """G9: 1.2 s of 300 W (700 W), with 100 W before and 50 W (60 W) after."""
    one = readings(found, "edge")[board]
    assert one.energy_j == pytest.approx(1.2 * (700 if board == 2 else 300), rel=0.02)


def test_a_window_of_fewer_than_ten_periods_is_an_estimate(found):
    (one,) = readings(found, "short")
    assert one.source == "counter"
    assert "shorter than 10 periods" in one.estimated
