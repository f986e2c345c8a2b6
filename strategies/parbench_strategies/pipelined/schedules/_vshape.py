"""V-shaped schedules place stages down the ranks and up again: the first rank holds the first stage and the last one.

rank 0  | stage 0        stage 7 |
rank 1  |   stage 1    stage 6   |
rank 2  |     stage 2 stage 5    |
rank 3  |      stage 3-stage 4   |
"""

from __future__ import annotations

from parbench.schedule import Schedule


class VShaped(Schedule):
    """Has two chunks per rank: 0 on the way down and 1 on the way up; at the turn nothing is sent."""

    one_stream = False

    @property
    def chunks(self) -> int:
        return 2

    def stage_of(self, rank: int, chunk: int, ranks: int) -> int:
        return rank if chunk == 0 else 2 * ranks - 1 - rank

    def place_of(self, stage: int, ranks: int) -> tuple[int, int]:
        return (stage, 0) if stage < ranks else (2 * ranks - 1 - stage, 1)
