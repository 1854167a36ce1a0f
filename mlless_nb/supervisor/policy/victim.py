"""The choice of the worker to remove: the one with the worst replica, else the slowest one. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ...exchange.step_report import Report

NOTHING = Report()
#: Replicas count as equally good if their losses differ by less than this, relative to the best one's.
TIE = 1e-6


def worst_worker(reports: Mapping[int, Report], staying: list[int]) -> int:
    """The slot, one of ``staying``, whose removal harms the run least.

    Parameters
    ----------
    reports : Mapping
        Each slot's newest report.
    staying : list of int
        Slots to choose from, at least one.
    """
    losses, slowness = {}, {}
    for slot in staying:
        report = reports.get(slot, NOTHING)
        losses[slot] = report.quality_sum / report.quality_count if report.quality_count else 0.0
        slowness[slot] = report.compute_s + report.exchange_s
    worst, best = max(losses.values()), min(losses.values())
    is_known = all(reports.get(slot, NOTHING).quality_count for slot in staying)
    if is_known and worst - best > TIE * abs(best):
        candidates = [slot for slot in staying if losses[slot] >= worst - TIE * abs(best)]
    else:
        candidates = staying
    return max(candidates, key=lambda slot: (slowness[slot], slot))


def asked_to_leave(slots: list[int], count: int, n_workers: int, leaves: Mapping[int, int]) -> list[int] | str:
    """The workers that a user's command removes, or one line that says why it is refused.

    Parameters
    ----------
    slots : list of int
        The workers that the command names; empty: the last ``count`` workers.
    n_workers : int
        Workers at the start.
    leaves : Mapping
        For each slot that has left or is leaving, the first step that it does not take part in.
    """
    staying = [slot for slot in range(n_workers) if slot not in leaves]
    for slot in slots:
        if not 0 <= slot < n_workers:
            return f"there is no worker {slot}: they are 0 to {n_workers - 1}"
        if slot in leaves:
            return f"worker {slot} has left or is leaving already"
    chosen = sorted(set(slots)) or staying[max(len(staying) - count, 0) :]
    if not chosen or len(staying) - len(chosen) < 1:
        return f"workers {', '.join(map(str, staying))} are in the run, and at least one must stay"
    return chosen
