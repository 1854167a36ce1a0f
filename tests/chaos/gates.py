"""What a chaos campaign has to show: the promises of docs/reliability.md, each with its figure and its bound."""

from __future__ import annotations

from typing import NamedTuple

from chaos.runner import LEASE_S, Outcome

#: Leases within which a lost function is replaced: half of them, and every one.
USUAL_LEASES, MOST_LEASES = 2.0, 4.0
#: Checkpoint intervals that a restart goes back, at most: no step further than that is taken before a newer checkpoint
#: is whole.
MOST_INTERVALS = 1.0
#: Where the newest checkpoint was damaged: the one before it counts.
MOST_DAMAGED = MOST_INTERVALS + 1.0
#: The least size of a campaign.
FAULTS, JOBS = 500, 60


class Gate(NamedTuple):
    """One figure and its bound: the most that it may be, or, with ``is_least``, the least."""

    what: str
    figure: float
    bound: float
    is_least: bool = False

    @property
    def is_kept(self) -> bool:
        """Whether the figure is within its bound."""
        return self.figure >= self.bound if self.is_least else self.figure <= self.bound

    def __str__(self) -> str:
        word = "least" if self.is_least else "most"
        return f"{self.what}: {self.figure:.4g}, at {word} {self.bound:g}: {'kept' if self.is_kept else 'MISSED'}"


class Restarts(NamedTuple):
    """Steps that were taken again, in checkpoint intervals, sorted: ``damaged`` if the newest checkpoint was."""

    plain: list[float]
    damaged: list[float]


def gates(outcomes: list[Outcome], n_faults: int, n_wrong: int, *, is_whole: bool) -> list[Gate]:
    """The gates of a campaign of ``n_faults`` faults; those of its size only if it ``is_whole``."""
    found = [Gate("runs that were lost, hung or wrong", n_wrong, 0)]
    if is_whole:
        found += [Gate("faults", n_faults, FAULTS, is_least=True), Gate("jobs", len(outcomes), JOBS, is_least=True)]
    for how, leases in replacements(outcomes).items():
        found += _two(f"leases until functions {how} are replaced", leases, USUAL_LEASES, MOST_LEASES)
    plain, damaged = restarts(outcomes)
    again = "checkpoint intervals that are trained again after a restart"
    found += [Gate(f"{again}, max", plain[-1], MOST_INTERVALS)] if plain else []
    found += [Gate(f"{again} whose newest checkpoint is damaged, max", damaged[-1], MOST_DAMAGED)] if damaged else []
    return found


def _two(what: str, figures: list[float], usual: float, most: float) -> list[Gate]:
    if not figures:
        return []
    return [Gate(f"{what}, p50", quantile(figures, 0.5), usual), Gate(f"{what}, max", figures[-1], most)]


def quantile(ordered: list[float], share: float) -> float:
    """That of figures in order."""
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def replacements(outcomes: list[Outcome]) -> dict[str, list[float]]:
    """Leases until killed functions were replaced, sorted, by how they were found."""
    found = {"that the driver sees die": list[float](), "found by their leases alone, as on a cloud": list[float]()}
    seen, unseen = found.values()
    for outcome in outcomes:
        for one in outcome.followed:
            if "frozen" not in one.what:
                (unseen if outcome.case.by_lease else seen).extend(s / LEASE_S for s in one.replaced_s.values())
    return {how: sorted(leases) for how, leases in found.items()}


def restarts(outcomes: list[Outcome]) -> Restarts:
    """The restarts of a campaign after which steps were taken again."""
    found = Restarts([], [])
    for outcome in outcomes:
        for one in outcome.followed:
            if one.recomputed:
                kind = found.damaged if "damaged" in one.what else found.plain
                kind.append(one.recomputed / outcome.case.checkpoint_every)
    return Restarts(*map(sorted, found))
