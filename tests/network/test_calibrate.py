"""Calibration from synthetic samples: alpha and beta come back, kinks are found, errors are those of unseen sizes."""

import json

import msgspec
import numpy as np
import pytest

from parbench import cli
from parbench.errors import UnreadableError, UsageError
from parbench.network.bench import Measured, Wanted
from parbench.network.calibrate import curves_of, reducing_of
from parbench.network.calibration import Calibration, path_of, stored

SIZES = tuple(8 * 2**k for k in range(21))  # 8 bytes to 8 MiB
ALPHA_S, BETA = 1.0e-3, 24e-9


def measured(time_of, *, op="all_reduce", noise=0.02, seed=0, sizes=SIZES, n=20, ranks=4, algorithm="ring"):
    rng = np.random.default_rng(seed)
    return [
        Measured(
            wanted=Wanted(op=op, algorithm=algorithm, ranks=ranks, bytes=size),
            samples_s=tuple(time_of(size) * (1 + noise * rng.standard_normal(n))),
            sent_bytes=None,
        )
        for size in sizes
    ]


def straight(size):
    return ALPHA_S + BETA * size


@pytest.mark.parametrize("seed", range(5))
def test_alpha_and_beta_come_back_from_noisy_samples(seed):
    (curve,) = curves_of(measured(straight, seed=seed))
    assert curve.alpha_s == pytest.approx(ALPHA_S, rel=0.02)
    assert curve.beta_s_per_byte == pytest.approx(BETA, rel=0.02)
    assert len(curve.pieces) == 1
    assert curve.trend == ""
    assert curve.error("alpha_beta") < 0.05
    assert curve.time_s(25_000_000, "alpha-beta") == pytest.approx(straight(25_000_000), rel=0.03)


def test_beta_is_that_of_large_messages_where_small_ones_cost_less_per_byte():
    # A burst that a link lets through at once: a straight fit to all sizes errs by tens of percent here.
    def kinked(size):
        return ALPHA_S + (4e-9 * size if size <= 70_000 else 4e-9 * 70_000 + BETA * (size - 70_000))

    (curve,) = curves_of(measured(kinked, noise=0.01))
    assert curve.beta_s_per_byte == pytest.approx(BETA, rel=0.03)
    assert len(curve.pieces) > 1
    assert "% from the line" in curve.trend
    assert any(20_000 <= piece.from_bytes <= 300_000 for piece in curve.pieces[1:])
    assert curve.error("piecewise") < 0.06 < curve.error("alpha_beta")
    for size in (1000, 500_000, 6_000_000):
        assert curve.time_s(size, "piecewise") == pytest.approx(kinked(size), rel=0.06)


def test_a_third_of_the_sizes_is_held_out_and_nothing_is_fitted_to_them():
    clean = measured(straight, noise=0)
    (curve,) = curves_of(clean)
    held = [one.bytes for one in curve.held_out]
    assert len(held) == 7
    assert held[0] > SIZES[0]
    assert held[-1] < SIZES[-1]
    assert curve.error("alpha_beta") == pytest.approx(0, abs=1e-6)
    spoiled = [
        msgspec.structs.replace(one, samples_s=tuple(2 * s for s in one.samples_s)) if one.wanted.bytes in held else one
        for one in clean
    ]
    (other,) = curves_of(spoiled)
    assert (other.alpha_s, other.beta_s_per_byte, other.pieces) == (curve.alpha_s, curve.beta_s_per_byte, curve.pieces)
    assert all(one.alpha_beta == pytest.approx(-0.5, abs=1e-6) for one in other.held_out)


def test_scatter_between_sizes_is_not_taken_for_kinks():
    rng = np.random.default_rng(3)
    factors = {size: float(np.exp(0.2 * rng.standard_normal())) for size in SIZES}
    (curve,) = curves_of(measured(lambda size: straight(size) * factors[size], noise=0.01))
    assert len(curve.pieces) == 1
    assert curve.error("alpha_beta") > 0.1  # and the error says how far to trust it


def test_times_are_measured_interpolated_or_computed():
    (curve,) = curves_of(measured(straight, noise=0))
    assert curve.time_s(64, "measured") == pytest.approx(straight(64))
    with pytest.raises(UsageError, match="all_reduce of 65 bytes was not measured; measured are 8, 16"):
        curve.time_s(65, "measured")
    assert curve.time_s(3_000_000) == pytest.approx(straight(3_000_000))
    assert curve.time_s(1) == pytest.approx(straight(8))
    assert curve.time_s(80_000_000) == pytest.approx(straight(80_000_000), rel=1e-3)
    with pytest.raises(UsageError, match="give a size, and one of measured"):
        curve.time_s(8, "guessed")


def test_gamma_is_what_an_all_reduce_costs_beyond_two_all_gathers():
    gamma, link, n = 3e-9, 8e-9, 4
    add = (n - 1) / n
    gathers = measured(lambda size: 1e-3 + add * link * size, op="all_gather", noise=0)
    reduces = measured(lambda size: 2e-3 + add * (2 * link + gamma) * size, noise=0)
    (found,) = reducing_of(curves_of([*gathers, *reduces]))
    assert found.gamma_s_per_byte == pytest.approx(gamma, rel=1e-3)
    (free,) = reducing_of(curves_of([*gathers, *measured(lambda size: 1e-3 + add * link * size, noise=0)]))
    assert free.gamma_s_per_byte is None
    assert "adding is hidden" in free.reason


def calibration(**changes):
    curves = curves_of(measured(straight))
    fields = {"fingerprint": "cd6c", "software": "1", "link": "rate=312mbit alpha=1ms", "backend": "gloo"}
    rest = {"device": "cpu", "measured_at": "2026-11-30T00:00:00+00:00", "curves": curves}
    return Calibration(**{**fields, **rest, **changes})


def test_a_stored_calibration_is_read_back_by_machine_and_link(tmp_path):
    one, other = calibration(), calibration(link="loopback")
    path = one.store(tmp_path)
    other.store(tmp_path)
    assert Calibration.load(path) == one
    assert Calibration.load_for(tmp_path, "cd6c", "rate=312mbit alpha=1ms") == one
    assert [found for _, found in stored(tmp_path)] == [other, one]
    assert one.time_s("all_reduce", ranks=4, nbytes=8, algorithm="ring") == pytest.approx(ALPHA_S, rel=0.02)
    with pytest.raises(UsageError, match=r"broadcast \(native, 4 ranks\) is not calibrated on rate=312mbit"):
        one.time_s("broadcast", ranks=4, nbytes=8)
    with pytest.raises(UnreadableError, match="parbench network calibrate makes one"):
        Calibration.load_for(tmp_path, "another", "loopback")
    assert not list(tmp_path.rglob(".partial*"))


def test_an_older_calibration_of_the_same_link_is_replaced(tmp_path):
    calibration().store(tmp_path)
    newer = calibration(measured_at="2026-12-01T00:00:00+00:00")
    newer.store(tmp_path)
    assert [found for _, found in stored(tmp_path)] == [newer]


@pytest.mark.parametrize("link", ["../../etc/passwd", "a" * 5000, "", ".hidden", "x\x00y"])
def test_names_of_links_never_leave_their_folder(tmp_path, link):
    path = path_of(tmp_path, "../cd6c", link, "gloo", "cpu")
    assert path.resolve().parent.parent == tmp_path.resolve() / "network"
    assert len(path.name) < 100
    assert not path.name.startswith(".")


def test_files_that_are_no_calibration_are_named_and_not_believed(tmp_path):
    path = calibration().store(tmp_path)
    whole = path.read_bytes()
    plain = json.loads(whole)
    newer = {**plain, "schema": {**plain["schema"], "major": 2}}
    foreign = {**plain, "schema": {**plain["schema"], "name": "parbench.record"}}
    endless = whole.replace(b'"alpha_s": ', b'"alpha_s": 1e999, "was": ', 1)
    for data, said in [
        (whole[: len(whole) // 2], "not a whole calibration"),
        (b"\x89PNG", "not a whole calibration"),
        (b"[]", "not a whole calibration"),
        (b"{}", "not a calibration of parbench"),
        (json.dumps(newer).encode(), "written by a newer version"),
        (json.dumps(foreign).encode(), "not a calibration of parbench"),
        (endless, "calibration|no times"),
        (json.dumps({**plain, "curves": [{**plain["curves"][0], "points": []}]}).encode(), "without points"),
    ]:
        path.write_bytes(data)
        with pytest.raises(UnreadableError, match=said):
            Calibration.load(path)
        assert isinstance(next(stored(tmp_path))[1], UnreadableError)


def test_list_shows_presets_calibrations_and_what_cannot_be_read(tmp_path, run_cli):
    calibration().store(tmp_path)
    (tmp_path / "network" / "cd6c" / "broken.json").write_text("{")
    code, out, err = run_cli("network", "list", "-o", tmp_path)
    assert code == 0
    assert "10gbe" in out
    assert "rate=312mbit alpha=1ms" in out
    assert "broken.json: not a whole calibration" in err
    code, out, _ = run_cli("network", "list", "-o", tmp_path, "--json")
    document = json.loads(out)
    assert {one["name"] for one in document["presets"]} >= {"1gbe", "10gbe", "25gbe", "100gbe"}
    assert document["calibrations"][0]["calibration"]["link"] == "rate=312mbit alpha=1ms"
    assert document["calibrations"][0]["calibration"]["curves"][0]["alpha_s"] > 0


def test_too_few_sizes_are_refused_before_anything_starts(run_cli, tmp_path):
    code, _, err = run_cli("network", "calibrate", "--min", "8", "--max", "64", "-o", tmp_path)
    assert (code, "4 sizes are too few" in err) == (2, True)
    with pytest.raises(UsageError, match="has 4 sizes"):
        curves_of(measured(straight, sizes=SIZES[:4]))


@pytest.mark.usefixtures("no_orphans")
def test_a_calibration_of_this_machine_is_stored_and_says_how_far_it_errs(run_cli, tmp_path, mark):
    arguments = ("--op", "all_reduce", "--op", "all_gather", "--algorithm", "ring", "--min", "64", "--max", "1MiB")
    code, out, err = run_cli(
        "network", "calibrate", *arguments, "--factor", "4", "--iterations", "8", "-o", tmp_path, "--json"
    )
    assert code == 0, err
    document = json.loads(out)
    found = Calibration.load_for(tmp_path, document["calibration"]["fingerprint"], "loopback")
    assert document["path"] in err
    assert [(one.op, one.ranks) for one in found.curves] == [("all_reduce", 2), ("all_gather", 2)]
    for curve in found.curves:
        assert curve.alpha_s > 0
        assert len(curve.points) == 8
        assert all(point.n == 8 for point in curve.points)
        assert curve.error("interpolated") is not None
    assert [one.ranks for one in found.reducing] == [2]


@pytest.fixture
def run_cli(capfd, monkeypatch):
    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["parbench", *map(str, arguments)])
        try:
            code = cli.main()
        except SystemExit as ended:
            code = ended.code or 0
        return (code, *capfd.readouterr())

    return run
