"""The rounds of a quorum, kept in memory by the rules of ``redis/arrive.lua`` and ``redis/catch_up.lua``."""

from __future__ import annotations

from .protocol import Closing, RoundRequest
from .step_report import LateArrival


class QuorumRounds:
    """Arrivals and ends of the rounds with a quorum; the rounds end in the order of their steps.

    Parameters
    ----------
    newest : int
        The step before the first round; the others go on from it.
    announced : int
        Initial value of the attribute.

    Attributes
    ----------
    announced : int
        The quorum of the rounds to come; 0: none was announced.
    closings : dict
        How the kept rounds that are complete ended, by step.
    late : list of LateArrival
        Arrivals at complete rounds.
    """

    def __init__(self, newest: int = 0, announced: int = 0) -> None:
        self.announced = announced
        self.closings: dict[int, Closing] = {}
        self.late: list[LateArrival] = []
        self._arrived: dict[int, dict[int, float]] = {}  # times by step and slot, in the order of arrivals
        self._reached: dict[int, int] = {}  # by slot: it has read the frames of all earlier steps
        self._open: RoundRequest | None = None  # the newest arrival at the round that is not complete
        self._newest = newest  # the newest complete step

    def arrive(self, part: RoundRequest, now_s: float) -> None:
        """Take in an arrival at ``now_s`` seconds. It may let a round end, see `end`."""
        self.reach(part)
        arrived = self._arrived.setdefault(part.step, {})
        is_late = part.step <= self._newest
        if part.slot not in arrived:
            arrived[part.slot] = now_s
            if is_late:
                self.late.append(LateArrival(part.step, len(arrived), now_s))
        if not is_late:
            self._open = part

    def reach(self, part: RoundRequest) -> None:
        """Note that the slot of ``part`` has read the frames of all steps before that of ``part``."""
        self._reached[part.slot] = part.step

    def read_step(self, part: RoundRequest) -> int:
        """The newest step whose frames all publishers of ``part`` have read."""
        return min(self._reached.get(slot, 1) for slot in part.publishers) - 1

    def end(self) -> RoundRequest | None:
        """End the open round if it has its arrivals and no worker is too late; returns an arrival at it, or None."""
        part = self._open
        if part is None or len(self._arrived[part.step]) < part.n_due:
            return None
        if self.read_step(part) + 1 < part.step - part.most_late:
            return None
        slots = sorted(list(self._arrived[part.step])[: part.n_due])
        self.closings[part.step], self._newest, self._open = Closing(slots, self.announced), part.step, None
        for kept in (self.closings, self._arrived):
            kept.pop(part.step - part.kept_steps, None)
        return part

    def arrived_s(self, step: int) -> tuple[float, ...]:
        """Times of the arrivals at the round of ``step`` so far, ascending, seconds."""
        return tuple(self._arrived[step].values())

    def since(self, step: int) -> list[Closing]:
        """How the complete rounds from ``step`` on ended."""
        return [self.closings[one] for one in range(step, self._newest + 1)]
