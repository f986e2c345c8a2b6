"""Energy of recorded series, with areas worked out by hand."""

import pytest

from parbench.energy import Sample, disagreement, energy_of


def series(power, *, start=0.0, end=3.0, every=0.05, counter_every=None, without=()):
    """Samples of a board whose power is power(t); its counter changes every `counter_every` seconds."""
    samples, joules, shown, last = [], 0.0, 0.0, 0.0
    for k in range(round((end - start) / every) + 1):
        t = start + k * every
        joules += power(t - every / 2) * every if k else 0.0
        if counter_every is None or t - last >= counter_every - 1e-9:
            shown, last = joules, t
        if not any(a <= t <= b for a, b in without):
            samples.append(Sample(at_s=t, power_w=power(t), energy_j=shown))
    return samples


def only(samples, kind):
    return [Sample(at_s=s.at_s, **{kind: getattr(s, kind)}) for s in samples]


def test_constant_power_is_power_times_time():
    found = energy_of(series(lambda t: 250.0), 0.52, 2.52)
    assert found.energy_j == pytest.approx(500)
    assert found.integral_j == pytest.approx(500)
    assert found.source == "counter"


def test_a_ramp_is_integrated_exactly_between_readings():
    """100 W and 100 W/s more: from 1.02 to 1.98 s that is 100 x 0.96 + 50 x (1.98^2 - 1.02^2)."""
    found = energy_of(only(series(lambda t: 100 + 100 * t), "power_w"), 1.02, 1.98)
    assert found.energy_j == pytest.approx(100 * 0.96 + 50 * (1.98**2 - 1.02**2))


def test_what_was_drawn_before_the_window_does_not_count():
    loading = series(lambda t: 900.0 if t < 0.95 else 100.0)
    assert energy_of(only(loading, "power_w"), 1.0, 2.0).energy_j == pytest.approx(100)


def test_a_counter_is_interpolated_between_its_changes():
    """It changes every 0.3 s, always to what has been drawn since its last change."""
    samples = only(series(lambda t: 200.0, counter_every=0.3, end=4.0), "energy_j")
    found = energy_of(samples, 0.4, 3.6)
    assert found.energy_j == pytest.approx(640)
    assert found.period_s == pytest.approx(0.3)


def test_a_counter_that_stands_still_is_an_estimate_of_nothing_and_the_integral_contradicts_it():
    samples = [Sample(at_s=s.at_s, power_w=s.power_w, energy_j=5.0) for s in series(lambda t: 200.0)]
    found = energy_of(samples, 0.5, 2.5)
    assert (found.energy_j, found.integral_j) == (0, pytest.approx(400))
    assert "never changed" in found.estimated
    assert disagreement(found.counter_j, found.integral_j) == 1


def test_a_hole_in_power_is_bridged_while_it_is_small():
    found = energy_of(only(series(lambda t: 200.0, without=[(1.0, 1.1)]), "power_w"), 0.5, 2.5)
    assert found.energy_j == pytest.approx(400)
    found = energy_of(only(series(lambda t: 200.0, without=[(1.0, 2.0)]), "power_w"), 0.5, 2.5)
    assert found.energy_j is None
    assert "power could not be read in 55% of the window" in found.reason  # 0.95 to 2.05 s


def test_a_counter_goes_on_in_a_hole_but_not_over_an_edge():
    found = energy_of(series(lambda t: 200.0, without=[(1.0, 2.0)]), 0.52, 2.52)
    assert (found.source, found.energy_j, found.integral_j) == ("counter", pytest.approx(400), None)
    assert found.missed == pytest.approx(0.55)
    found = energy_of(only(series(lambda t: 200.0, without=[(0.2, 0.9)]), "energy_j"), 0.52, 2.52)
    assert found.energy_j is None
    assert "could not be read for 0.85 s at the edges" in found.reason


def test_readings_that_begin_late_or_end_early_are_a_hole_too():
    assert energy_of(series(lambda t: 200.0, start=1.5), 0.5, 2.5).energy_j is None
    assert energy_of(series(lambda t: 200.0, end=1.5), 0.5, 2.5).energy_j is None


@pytest.mark.parametrize("samples", [[], [Sample(at_s=1.0)], [Sample(at_s=1.0, power_w=100.0)]])
def test_nothing_read_is_a_reason(samples):
    found = energy_of(samples, 0.5, 2.5)
    assert found.energy_j is None
    assert found.reason


@pytest.mark.parametrize(
    ("counter", "integral", "apart"),
    [(187.0, 327.0, 140 / 327), (100.0, 100.0, 0.0), (None, 1.0, None), (0.0, 0.0, 0.0)],
)
def test_how_far_two_sources_are_apart(counter, integral, apart):
    assert disagreement(counter, integral) == apart
