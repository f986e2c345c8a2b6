"""Prints docs/power.md: how often a change is found, by how much it is, how noisy the machine and how many launches."""

import numpy as np
from simulated import KINDS, check_alarms, compare_alarms

SLOWER = (1.0, 1.02, 1.03, 1.05, 1.1)
NOISE = (0.01, 0.03)
LAUNCHES = (4, 6, 10, 20)
RUNS = ((10, 1), (10, 3), (10, 5), (20, 5), (30, 10))
TRIALS = 120

TEXT = """# Power

How often a slow-down is found, in {trials} simulated comparisons for each number (so a share of 50 % is uncertain by
9 points). Simulated launches and runs have rounds that follow each other, heavy tails and interruptions, and lie around
their middle in six ways, equally often: {kinds}.
*Noise* is the typical deviation of a launch, and of a round within it. The column 0 % is false alarms; the accepted
rate is 5 %. This page is printed by `make power`.

Without outliers, n launches a side find a change d at a noise s with 80 % chance where n is about 2 (2.8 s / d)^2, and
at least 4: for 3 % at a noise of 1 %, 4; at a noise of 3 %, 16. Outliers and modes cost more, as the tables show. A
change of just the margin, 2 %, is called one half of the time at most, however many launches there are.
"""


def main():
    """Print the document."""
    print(TEXT.format(trials=TRIALS, kinds=", ".join(KINDS)))
    print("## parbench compare\n\nLaunches of old and new alternate; 8 rounds of 5 steps each.\n")
    table("launches a side", LAUNCHES, lambda rng, kind, n, **how: compare_alarms(rng, kind, n, **how))
    print("\n## parbench check\n")
    names = {f"{base} runs, then {fresh}": (base, fresh) for base, fresh in RUNS}
    table("baseline, new", list(names), lambda rng, kind, name, **how: check_alarms(rng, kind, *names[name], **how))


def table(first, rows, alarm):
    """Print a table: a row per noise and size, a column per slow-down."""
    print(f"| noise | {first} | " + " | ".join(f"{100 * (s - 1):.0f} %" for s in SLOWER) + " |")
    print("|--:|---|" + "--:|" * len(SLOWER))
    for noise in NOISE:
        for row in rows:
            shares = [share(alarm, row, noise, slow) for slow in SLOWER]
            print(
                f"| {100 * noise:.0f} % | {row} | " + " | ".join(f"{100 * x:.0f} %" for x in shares) + " |", flush=True
            )


def share(alarm, row, noise, slow):
    """Return the share of trials with an alarm, the kinds of noise in turn."""
    rng = np.random.default_rng((int(1000 * slow), int(1000 * noise)))
    return sum(alarm(rng, KINDS[k % len(KINDS)], row, noise=noise, slow=slow) for k in range(TRIALS)) / TRIALS


if __name__ == "__main__":
    main()
