"""A notebook's run on the user's machine: prints how it ended as JSON. Arguments: options of the job as JSON.

``config`` changes the section of AWS Lambda in Lithops' configuration, which is then the user's own. ``says_step``, a
number or several: it prints a line when so many steps are done, and then removes worker ``removes``; ``tuned`` leaves
that to the tuner.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from typing import Any

#: Options that are not the job's.
OWN = ("config", "rank", "removes", "says_step", "steps", "tuned")
#: Longest wait for the run, seconds.
PATIENCE_S = 180.0


def main(asked: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    import mlless_nb
    from mlless_nb import BSP, PMF, SGD, ScaleIn, Stop, TrainingJob, datasets
    from mlless_nb.driver.backends import deployed

    options: dict[str, Any] = {"backend": "aws_lambda", "workers": 3, "memory_mb": 1769, "budget": 0.5}
    options["minibatch"] = 2000
    options["pattern"] = "broadcast"  # a busy machine measures other links, for which another one is chosen
    options |= {key: value for key, value in asked.items() if key not in OWN}
    if "config" in asked:
        profile = deployed.find("aws_lambda")
        options["backend"] = profile.lithops_config()
        options["backend"]["aws_lambda"] |= asked["config"]
        options |= deployed.servers_of("aws_lambda")
    began = time.monotonic()
    try:
        run = mlless_nb.train(
            TrainingJob(
                model=PMF(rank=asked.get("rank", 8), l2=0.02),
                optimizer=SGD(learning_rate=2.0, momentum=0.9, nesterov=True),
                data=datasets.synthetic_ratings(2000, 1000, 100_000, rank=4, seed=1),
                sync=BSP(),
                stop=Stop(steps=asked.get("steps", 50)),
                scale_in=ScaleIn() if asked.get("tuned") else ScaleIn.off(),
                detach=False,
                **options,
            )
        )
    except mlless_nb.MllessError as error:
        return {"refused": str(error), "whole_s": time.monotonic() - began}
    begun_s = time.monotonic() - began
    said = asked.get("says_step", [])
    to_say = said if isinstance(said, list) else [said]
    while to_say and run.telemetry.state.is_live:
        if run.telemetry.state.step >= to_say[0]:
            del to_say[0]
            print(json.dumps({"step": run.telemetry.state.step}), flush=True)
            if "removes" in asked:
                run.scale_in(worker_id=asked["removes"])
        time.sleep(0.05 if to_say else 0.0)
    run.wait(PATIENCE_S)
    if is_live := run.telemetry.state.is_live:
        run.stop()
        run.wait(30)
    ended_at_s = time.time()
    try:
        params = run.last_model.params
    except mlless_nb.MllessError:
        params = {}
    state = run.telemetry.state
    return {
        "status": "live" if is_live else state.status,
        "reason": run.reason,
        "steps": state.step,
        "n_workers": [int(n) for n in run.history["n_workers"][[0, -1]]] if state.step else [],
        "digest": hashlib.sha256(b"".join(params[name].tobytes() for name in sorted(params))).hexdigest(),
        "moved_bytes": float(np.median(run.history["sent_bytes"] + run.history["received_bytes"]))
        if state.step
        else 0.0,
        "functions_usd": run.cost["workers"] + run.cost["supervisor"],
        "cost": dict(run.cost),
        "time_s": state.time_s,
        "ended_at_s": ended_at_s,
        "begun_s": begun_s,
        "whole_s": time.monotonic() - began,
        "told": [f"{event.time_s:.1f} {event.text}" for event in state.events],
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
