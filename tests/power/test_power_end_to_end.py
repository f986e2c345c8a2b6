"""Energy through the command line: a package of 50 W, from a tree like the kernel's that a thread keeps counting."""

import threading
import time

import pytest


@pytest.fixture
def powercap(tmp_path):
    """A tree with one package that draws 50 W."""
    folder = tmp_path / "powercap" / "intel-rapl:0"
    folder.mkdir(parents=True)
    (folder / "name").write_text("package-0")
    (folder / "max_energy_range_uj").write_text("262143328850")
    done = threading.Event()

    def count():
        while not done.wait(0.002):
            (folder / "next").write_text(str(int(time.perf_counter() * 50e6)))
            (folder / "next").replace(folder / "energy_uj")

    thread = threading.Thread(target=count)
    thread.start()
    yield folder.parent
    done.set()
    thread.join()


def test_four_ranks_of_a_host_report_its_energy_once(start, powercap):
    arguments = ("digits", "--size", "smoke", "-s", "ddp", "-n", 4, "--steps", 10, "--parity-steps", 0, "--json")
    done = start(*arguments, "--require", "power", PARBENCH_POWERCAP=str(powercap)).wait()
    assert done.code == 0, done.err
    (run,) = done.document["runs"]
    metrics = run["metrics"]
    (record,) = done.records.values()
    (package,) = record["power"]["boards"]
    assert metrics["power_w"]["value"] == pytest.approx(50, rel=0.1)
    assert package["idle_w"] == pytest.approx(50, rel=0.1)
    assert metrics["power_w"]["source"].startswith("1 CPU package, idle power included, energy counter")
    per_step = metrics["energy_j_per_step"]["value"]
    assert per_step == pytest.approx(50 * package["window_s"] / package["steps"], rel=0.1)
    total_j = metrics["energy_j_per_sample"]["value"] * record["power"]["samples"]
    assert total_j == pytest.approx(per_step * package["steps"])


def test_power_that_is_required_and_cannot_be_read_is_refused_before_anything_starts(parbench, tmp_path, monkeypatch):
    monkeypatch.setenv("PARBENCH_POWERCAP", str(tmp_path / "none"))
    done = parbench("digits", "--size", "smoke", "--device", "cpu", "--require", "power")
    assert (done.code, done.out) == (3, "")
    assert "--require power: this machine has no RAPL counters" in done.err
    assert not list(done.results.rglob("record.json"))


def test_what_is_required_must_be_known(parbench):
    done = parbench("digits", "--require", "powr")
    assert done.code == 2
    assert "no requirement named 'powr'; did you mean 'power'?" in done.err
