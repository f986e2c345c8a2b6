"""One launch measures its cases together: parity, a common warm-up, then rounds in shuffled order.

warm-up   A B C | A B C | ...             the same number of steps for all: losses stay comparable
rounds    B A C | C B A | A C B | ...     shuffled: what disturbs the machine meets every case alike
judged    loss and held-out data           once all have trained the same number of steps
aside     A | B | C                        energy, then what a step sends, then a trace: of each case by itself
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import final

from parbench.cases import Measured
from parbench.errors import MissingError, UsageError
from parbench.launch.failure import RankLost, RanksStuck, Stopped
from parbench.neighbours import Neighbours
from parbench.observed_trace import Traced
from parbench.pace import (
    MOST_WARM_UP_ROUNDS,
    MOST_WARM_UP_S,
    prolong_warm_up,
    round_steps,
    steady,
    warm_up_of,
    warm_up_steps,
)
from parbench.powering import Meters, find_meters, measure_power
from parbench.record import Status
from parbench.session import RoundSamples, Session, Variant
from parbench.traced import take

Phase = Callable[[Measured, str], None]
RoundDone = Callable[[Measured], None]

_MOST_COMPILING_ROUNDS = 10


@final
class Launch:
    """Measures cases that are alive together in one session.

    Args:
        open_session: starts the ranks.
        cases: what to measure; all in the same ranks.
        on_phase: told when a case enters a phase.
        on_round: told after each measured round of a case.
        folder: where ranks put traces.
    """

    def __init__(
        self,
        open_session: Callable[[], Session],
        cases: Sequence[Measured],
        on_phase: Phase,
        on_round: RoundDone,
        folder: Path,
    ) -> None:
        self._open = open_session
        self._cases = cases
        self._on_phase = on_phase
        self._on_round = on_round
        self._folder = folder
        self._variants: dict[int, Variant] = {}
        self._current: Measured | None = None
        self._meters = Meters(reason="the run ended before power was read")
        self.too_large = False

    def run(self) -> list[Measured]:
        """Measure, and return the cases that another launch must take up because one beside them broke this one.

        After that, `too_large` says whether memory ran out while several were alive: each then needs its own launch.

        Raises:
            Stopped: the user asked to stop; every case that was not finished is marked interrupted.
        """
        session: Session | None = None
        try:
            session = self._open()
            self._describe(session)
            self._meters = find_meters(session.call)
            self._measure(session)
        except (RankLost, RanksStuck) as error:
            return self._broken(session, error)
        except Stopped as stop:
            self._interrupted(session, stop)
            raise
        except MissingError as error:
            if session is not None:
                session.kill()
                raise
            for m in self._alive():  # the links of its network, or a GPU, were there when the suite was read
                m.end("unsupported", str(error), MissingError.exit_code)
            return []
        except BaseException:
            if session is not None:
                session.kill()
            raise
        self._leave(session)
        return []

    def _describe(self, session: Session) -> None:
        for m in self._cases:
            m.chosen |= session.chosen
            m.devices = session.ranks.device_names
            m.gpus = session.placement.gpus
            m.launch_kind = session.ranks.kind
            m.launch_world_size = session.ranks.world_size
            m.interleaved_with = [o.case.spec.strategy for o in self._cases if o is not m]

    def _measure(self, session: Session) -> None:
        for m in self._cases:
            self._enter(m, "start-up")
            self._build(session, m)
        for m in self._alive():
            if m.case.spec.parity_steps:
                self._enter(m, "parity")
                m.agreement = self._variant(m).parity(m.case.spec.parity_steps)
        self._warm_up(session)
        neighbours = Neighbours(session.ranks.pids)
        self._rounds()
        cores = neighbours.cores()
        for m in self._alive():
            m.neighbour_cores = cores
        self._aside(session, "energy", self._power)
        self._aside(session, "inspection", self._inspect)
        self._aside(session, "trace", self._trace)

    def _build(self, session: Session, m: Measured) -> None:
        variant = session.add(m.case.spec, refuse=False)
        m.unit, m.units_per_sample = variant.unit, variant.units_per_sample
        m.parameters, m.period, m.agrees = variant.parameters, variant.period, variant.agrees
        m.shards = variant.shards
        if variant.unsupported is not None:
            # What can never run was a mistake of the request; what cannot run here is a result.
            m.end("unsupported", variant.unsupported, UsageError.exit_code if variant.impossible else 0)
            return
        self._variants[id(m)] = variant

    def _warm_up(self, session: Session) -> None:
        pending = self._alive()
        lap = 0
        while pending:
            for m in pending:
                self._enter(m, "warm-up")
                m.warm_up_rounds.append(self._variant(m).round(warm_up_steps(m)))
                m.compile_s = self._variant(m).compile_s
                self._judge(m, m.warm_up_rounds[-1])
            lap += 1
            fixed = pending[0].case.spec.warmup is not None
            enough = fixed or all(steady(m.warm_up_rounds) for m in pending)
            spent_s = sum(r.wall_s for m in pending for r in m.warm_up_rounds)
            if enough or lap >= MOST_WARM_UP_ROUNDS or spent_s > MOST_WARM_UP_S * len(pending):
                break
        for m in pending:
            m.warm_up = warm_up_of(m)
            ready_s = session.ranks.ready_s
            first_s = self._variant(m).first_step_s
            if ready_s is not None and first_s is not None:
                m.startup_s = ready_s + self._variant(m).build_s + first_s

    def _rounds(self) -> None:
        seed = [(m.case.spec_id, m.case.repeat) for m in self._cases]
        order = random.Random(repr(seed))
        while pending := [m for m in self._alive() if m.steps_done < m.case.spec.steps]:
            order.shuffle(pending)
            for m in pending:
                self._enter(m, "measuring")
                done = self._variant(m).round(round_steps(m))
                m.compile_s = self._variant(m).compile_s
                if done.compile_s and sum(r.compile_s > 0 for r in m.warm_up_rounds) < _MOST_COMPILING_ROUNDS:
                    prolong_warm_up(m, done)  # a batch of another shape came by: not a time of the step
                    self._judge(m, done)
                    continue
                m.rounds.append(done)
                self._judge(m, done)
                self._on_round(m)

    def _power(self, m: Measured) -> None:
        m.power = measure_power(self._meters, self._variant(m), m.rounds)

    def _inspect(self, m: Measured) -> None:
        m.inspected = self._variant(m).inspect()

    def _trace(self, m: Measured) -> None:
        spec = m.case.spec
        if not spec.trace_steps:
            m.traced = Traced(reason="it was left out (--no-trace)")
            return
        folder = self._folder / f"trace{self._cases.index(m)}"
        found = take(self._variant(m), spec.trace_steps, folder, execution=spec.execution_trace)
        m.traced, m.trace_files, m.traffic = found.found, found.files, found.traffic

    def _aside(self, session: Session, name: str, do: Callable[[Measured], None]) -> None:
        """Look at every case once more, when all that is timed is done."""
        for m in self._alive():
            if m.teardown is not None:
                return
            self._enter(m, name)
            try:
                do(m)
            except (RankLost, RanksStuck) as error:  # what was measured before stays true
                if "GpuLost" in error.failure.message:
                    raise  # but not where the device itself has gone
                self._keep(error.logs)
                session.kill()
                for other in self._alive():
                    other.teardown = f"in the {name} of {m.case.spec.strategy}: {error}"
                return

    def _judge(self, m: Measured, last: RoundSamples) -> None:
        """Judge what was learnt once as many steps are trained as are to be measured, warm-up included.

        How long launches warm up differs; so would losses after all steps, and strategies would seem to learn better or
        worse than others.
        """
        if m.judged is None and self._variant(m).steps_taken >= m.case.spec.steps:
            self._enter(m, "held-out data")
            m.held_out = self._variant(m).held_out()
            m.judged = last

    def _enter(self, m: Measured, phase: str) -> None:
        self._current = m
        self._on_phase(m, phase)

    def _alive(self) -> list[Measured]:
        return [m for m in self._cases if not m.ended]

    def _variant(self, m: Measured) -> Variant:
        return self._variants[id(m)]

    # ---- endings

    def _leave(self, session: Session) -> None:
        self._current = None
        self._keep(session.ranks.logs())
        try:
            session.close()
        except Stopped:
            session.kill()
        except (RankLost, RanksStuck) as error:  # what was measured before the ranks left stays true
            self._keep(error.logs)
            for m in self._alive():
                m.teardown = str(error)

    def _keep(self, logs: Mapping[str, str]) -> None:
        for m in self._cases:
            m.logs = dict(logs)

    def _broken(self, session: Session | None, error: RankLost | RanksStuck) -> list[Measured]:
        self._keep(error.logs)
        if session is not None:
            session.kill()
        status, exit_code = _ending(error)
        self.too_large = status == "oom" and len(self._alive()) > 1
        if self.too_large:
            return self._alive()
        # Ranks that never came up are nobody's fault in particular: every case of the launch has failed.
        culprits = self._alive() if self._current is None else [self._current]
        for m in culprits:
            asked = f"; {m.case.asked}" if status == "oom" else ""
            m.end(status, f"{error}{asked}", exit_code, error.failure)
        return [m for m in self._cases if m not in culprits and not m.ended]

    def _interrupted(self, session: Session | None, stop: Stopped) -> None:
        if session is not None:
            self._keep(session.ranks.logs())
            session.kill()
        for m in self._alive():
            m.end("interrupted", f"{stop}; {m.steps_done} of {m.case.spec.steps} steps were measured", stop.exit_code)


def _ending(error: RankLost | RanksStuck) -> tuple[Status, int]:
    """Return the status and the exit code of a case that ended its launch."""
    if isinstance(error, RanksStuck):
        return "timeout", error.exit_code
    return ("oom" if error.failure.kind == "oom" else "failed"), error.exit_code
