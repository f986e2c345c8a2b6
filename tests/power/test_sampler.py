"""A sampler looks at meters on a thread of its own and is not ended by what they do not tell."""

import threading

from parbench.sampler import Sampler


class Scripted:
    """A meter that gives what it is told to, then nothing."""

    def __init__(self, *values):
        self.values, self.looks, self.enough = list(values), 0, threading.Event()

    def read(self):
        self.looks += 1
        if self.looks >= 5:
            self.enough.set()
        return self.values.pop(0) if self.values else (None, None)


def test_every_meter_is_looked_at_until_the_end_and_gaps_are_kept():
    first, second = Scripted((100.0, 1.0), (None, None), (120.0, 3.0)), Scripted()
    sampler = Sampler([first, second], period_s=0.001)
    sampler.start()
    assert second.enough.wait(30)
    series = sampler.stop()
    assert [len(one) for one in series] == [first.looks, second.looks]
    assert [(one.power_w, one.energy_j) for one in series[0][:4]] == [
        (100.0, 1.0),
        (None, None),
        (120.0, 3.0),
        (None, None),
    ]
    times = [one.at_s for one in series[0]]
    assert times == sorted(times)


def test_a_window_in_which_nothing_was_looked_at_has_its_edges():
    sampler = Sampler([Scripted((100.0, None), (100.0, None))], period_s=1000)
    sampler.start()
    (series,) = sampler.stop()
    assert len(series) == 2
