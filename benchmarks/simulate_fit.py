"""The constants of `TWO_CORES` that a probe cannot see: fitted to the steps measured here with one Redis server.

python benchmarks/simulate_fit.py [--quick]

The measured figures are read from RESULTS.md ("Growth with the workers"). Four constants are fitted by least squares on
the logarithms, robustly; what the table says little about stays near where it starts: at what was probed.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray
from report import Report, parser
from simulate import PATTERNS, WORKERS, local_step_ms, measured

from mlless_nb.simulate import MEASURED, TWO_CORES, Machine
from mlless_nb.simulate.machine import BYTES

#: Where the fit begins: as probed, but for the first two, which are no single process's, and bytes at their own price.
START = {
    "crowding": 0.3,
    "switch_s": 500e-6,
    "step_s": MEASURED.step_s,
    "bytes": 1.0,
}
#: Relative misfits above this count less than their square; how hard a constant is pulled back to its start.
ROBUST, PULL = 0.15, 0.01
#: Differences are taken over so much of a logarithm (a simulation is no smooth function), a round moves at most so far.
NEAR, FARTHEST = 0.1, 0.7
STEPS = 12


def machine_of(constants: dict[str, float]) -> Machine:
    """`TWO_CORES` with these constants."""
    shared = {name: constants["bytes"] * getattr(MEASURED, name) for name in BYTES}
    costs = dataclasses.replace(MEASURED, step_s=constants["step_s"], **shared)
    return dataclasses.replace(TWO_CORES, crowding=constants["crowding"], switch_s=constants["switch_s"], costs=costs)


def misfits(machine: Machine) -> NDArray[np.float64]:
    """log(simulated / measured) of every case with one server."""
    known, found = measured(), []
    for sync in ("BSP", "ISP"):
        for pattern in PATTERNS:
            for workers in WORKERS:
                sent = known[sync, "broadcast", 1, workers][1]
                ours = local_step_ms(sync, pattern, 1, workers, sent, machine, STEPS)
                found.append(np.log(ours / known[sync, pattern, 1, workers][0]))
    return np.array(found)


def in_use() -> dict[str, float]:
    """The constants of `TWO_CORES` as they are."""
    costs = TWO_CORES.costs
    return {
        "crowding": TWO_CORES.crowding,
        "switch_s": TWO_CORES.switch_s,
        "step_s": costs.step_s,
        "bytes": costs.send_byte_s / MEASURED.send_byte_s,
    }


def fit(rounds: int) -> dict[str, float]:
    """The constants that suit the table, by Gauss and Newton."""
    names, start = list(START), np.log(list(START.values()))
    logs = start.copy()

    def at(point: NDArray[np.float64]) -> NDArray[np.float64]:
        return misfits(machine_of(dict(zip(names, np.exp(point), strict=True))))

    for _ in range(rounds):
        here = at(logs)
        slopes = np.array([at(logs + NEAR * one) - here for one in np.eye(len(logs))]) / NEAR
        weighted = slopes / (1.0 + np.abs(here) / ROBUST)
        right = -weighted @ here - PULL * (logs - start)
        logs += np.clip(np.linalg.solve(weighted @ slopes.T + PULL * np.eye(len(logs)), right), -FARTHEST, FARTHEST)
    return dict(zip(names, map(float, np.exp(logs)), strict=True))


def main() -> None:
    """Fit and report."""
    options = parser(__doc__).parse_args()
    report = Report("simulate_fit", "Which constants suit the steps that were measured here?")
    found, used = fit(2 if options.quick else 8), in_use()
    rows: list[list[Any]] = [[name, f"{START[name]:.3g}", f"{found[name]:.3g}", f"{used[name]:.3g}"] for name in START]
    report.table(
        "Constants (seconds of a core; crowding and bytes are factors)", ["", "start", "found", "in use"], rows
    )
    off = {name: np.abs(np.expm1(misfits(machine_of(one)))) for name, one in (("found", found), ("in use", used))}
    cells = [[name, int((one <= 0.15).sum()), float(np.median(one)), float(one.max())] for name, one in off.items()]
    report.table("Misfit of 24 steps", ["", "within 15 %", "median", "largest"], cells)
    constants = {row[0]: row[2] for row in rows}
    report.end(found=constants, misfit={name: one.tolist() for name, one in off.items()})


if __name__ == "__main__":
    main()
