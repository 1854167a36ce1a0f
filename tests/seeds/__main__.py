"""Simulates seeds: ``python -m seeds 0:10000`` many, ``python -m seeds 17`` one, with all that happened in it."""

from __future__ import annotations

import sys
import time

from .check import run, run_seeds
from .scenario import scenario_of


def main(which: str) -> int:
    """Run seed or seeds; returns the exit code."""
    first, _, end = which.partition(":")
    if not end:
        world, outcome = run(scenario_of(int(first)), traces=True)
        print(world.scenario, *world.trace, *outcome.told, outcome, sep="\n")
        return 0
    n_failed, seeds, began_s = 0, range(int(first), int(end)), time.process_time()
    for seed in seeds:
        for sentence in run_seeds([seed]):
            print(sentence, flush=True)
            n_failed += 1
    print(f"{len(seeds)} seeds, {time.process_time() - began_s:.1f} s of processor time, {n_failed} failed")
    return int(n_failed > 0)


sys.exit(main(sys.argv[1]))
