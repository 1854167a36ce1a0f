"""The view model: converts `RunState` and the newest rows to words and figures. Pure.

All views (live widget, static bundle, text) show the result of `view_of`, so that they agree.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

from ..job.baseline import constant_of, shortfall
from ..money import Cost, StoreUse
from ..plurals import count
from ..telemetry.left import words
from ..telemetry.live import COLUMNS, RunState
from .access import Access
from .forecast import loss_text, progress_of, target_text
from .format import NOTHING, duration, metric, passes, percent, reached, rough_metric, rounded, short_time, size, usd
from .rows import Rows
from .strip import note_of, strip_of

#: Number of newest rows that the exchange line and the time bar are computed from.
RECENT_ROWS = 50
#: Number of newest events that a view shows.
SHOWN_EVENTS = 40
#: A cap above this many times the cost so far is shown as text, since its line would flatten the curve.
CAP_IN_SIGHT = 2.0
#: The baseline is drawn if it is at most this far above the losses, as a share of their range; else it would flatten
#: the curve.
BASE_IN_SIGHT = 0.25
_WORKERS = COLUMNS.index("n_workers")
_SENT = ("sent_bytes", "received_bytes")
WORDS = {
    "starting": "Starting",
    "running": "Running",
    "finished": "Finished",
    "stopped": "Stopped",
    "capped": "Budget reached",
    "failed": "Failed",
}
#: Icons beside the status words, so that a status is not shown by colour alone.
ICONS = {"starting": "○", "running": "●", "finished": "✓", "stopped": "■", "capped": "▲", "failed": "✕"}


def view_of(state: RunState, recent: Rows, *, stop_asked: bool = False, access: Access | None = None) -> dict[str, Any]:
    """Everything that a view shows beside the curves, as plain JSON.

    Parameters
    ----------
    state : RunState
    recent : ndarray, float64, shape (n, len(COLUMNS))
        The newest rows, at most `RECENT_ROWS`; there may be none.
    stop_asked : bool
        Whether Stop was pressed in this view.
    access : Access, optional
        See `next_text`.
    """
    return {**words_of(state, recent, stop_asked=stop_asked, access=access), **workers_of(state, recent)}


def words_of(
    state: RunState, recent: Rows, *, stop_asked: bool = False, access: Access | None = None
) -> dict[str, Any]:
    """As `view_of`, without `workers_of`."""
    progress = progress_of(state, recent)
    return {
        **_figures(state, int(recent[-1, _WORKERS]) if len(recent) else 0),
        "run_id": state.run_id,
        "name": state.name,
        "status": state.status,
        "word": "Stopping" if stop_asked and state.is_live else WORDS.get(state.status, state.status),
        "icon": ICONS.get(state.status, "●"),
        "is_live": state.is_live,
        "reason": _sentence(state.reason),
        "shortfall": _sentence(shortfall(state)),
        "estimate": estimate_text(state),
        "left_text": left_text(state),
        "metric": state.metric,
        "loss_title": loss_title(state.metric),
        "target": state.target,
        "target_line": f"target {metric(state.target)}" if state.target is not None else "",
        "target_soon": " · ".join(filter(None, (target_text(state), loss_text(state)))),
        "forecast_path": (state.forecast or {}).get("path", []) if state.is_live else [],
        "progress_share": progress["share"],
        "progress_text": progress["text"],
        "best_step": state.best_step,
        "base": state.baseline_loss,
        "base_text": base_text(state),
        "budget": state.budget_usd,
        "budget_text": f"cap {usd(state.budget_usd, trim=True)}" if state.budget_usd is not None else "",
        "budget_value": usd(state.budget_usd, trim=True).lstrip("$") if state.budget_usd is not None else "",
        "pending": list(state.pending),
        "refusal": _sentence(state.refusal) if state.is_live else "",
        "tuner": state.tuner,
        "events": [[duration(event.time_s), event.text] for event in reversed(state.events[-SHOWN_EVENTS:])],
        "cannot": _cannot(state, stop_asked),
        "next_text": "" if state.is_live else next_text(state, access),
        "more_value": "" if has_settled(state) else more_value(state),
        "if_restarted": _if_restarted(state),
    }


def workers_of(state: RunState, recent: Rows) -> dict[str, Any]:
    """The part of `view_of` on the workers' times: means over many steps, which take as long as all the rest."""
    strip = strip_of(state.worker_times)
    return {"strip": strip, "strip_note": note_of(state.worker_times, strip), "exchange": exchange_of(recent)}


def next_text(state: RunState, access: Access | None = None) -> str:
    """What a user may do after the end: ``first.model.save("first.npz") keeps the model; ...``.

    ``access`` says how the run is reached; by default as in the notebook whose magic has started it.
    """
    name = state.name or state.run_id
    handle, has_magics = access or Access(name if name.isidentifier() else f"mlless_nb.attach({name!r})", True)
    if not state.step or (state.status == "failed" and shortfall(state)):
        return ""  # there is no model worth keeping
    kept = f'{handle}.model.save("{name}.npz") keeps the model'
    if has_settled(state):
        return f"{kept}."
    goes_on = f"%%mlless --resume {name} --budget {more_value(state)}"
    return f"{kept}; {goes_on if has_magics else f'mlless_nb.train(job, resume={name!r})'} goes on from it."


def has_settled(state: RunState) -> bool:
    """Whether the run has ended as its loss did not get better: more dollars would hardly help."""
    return state.status == "finished" and f"no better {state.metric} than" in state.reason


def more_value(state: RunState) -> str:
    """Dollars to go on with: as much again as the run has cost, rounded up, and what it takes to start: ``0.02``."""
    amount = max(state.spent_usd, state.least_usd)
    if not 0 < amount < math.inf:
        return "0.05"
    unit = 10.0 ** math.floor(math.log10(amount))
    return usd(math.ceil(round(amount / unit, 6)) * unit, trim=True).lstrip("$").replace(",", "")


def estimate_text(state: RunState) -> str:
    """What the run was expected to take: ``Expected: about $0.003 and 15 s; 2 workers are cheapest and quickest``."""
    return f"Expected: {state.estimate}" if state.estimate else ""


def cost_text(cost: Cost) -> str:
    """The cost by part: ``Cost: workers $0.0121 · redis $0.0009; frames in redis: 9 puts (1.4 MB), 9 gets (3 MB)``."""
    parts = [f"{component} {rounded(amount)}" for component, amount in cost.items() if amount > 0]
    store = f"; {store_text(cost.store)}" if cost.store is not None else ""
    return f"Cost: {' · '.join(parts)}{store}" if parts else ""


def store_text(store: StoreUse) -> str:
    """The part of the cost that is the store's, see `cost_text`."""
    parts = [
        f"{count(n, noun)} ({size(n_bytes)})"
        for n, noun, n_bytes in ((store.n_puts, "put", store.put_bytes), (store.n_gets, "get", store.got_bytes))
    ]
    parts += [f"requests {rounded(store.requests_usd)}"] if store.requests_usd else []
    parts += [f"{store.start_s:g} s of start-up {rounded(store.start_usd)}"] if store.start_s else []
    return f"frames in {store.name}: {', '.join(parts)}"


def left_text(state: RunState) -> str:
    """What was counted after the end: ``Left of the run: 0 processes, 0 keys and 0 queues``."""
    return f"Left of the run: {words(state.left, zeros=True)}" if state.left else ""


def _if_restarted(state: RunState) -> dict[str, Any]:
    """What a browser shows in place of these words when it notices that the run's kernel is gone."""
    cannot = dict.fromkeys(("stop", "scale_in", "budget", "tune", "resume"), "The kernel was restarted.")
    if not state.is_live:
        return {"cannot": cannot}
    name = state.name or state.run_id
    told = f"; the run was stopped and saved: mlless_nb.attach({name!r})"
    next_text = f"%%mlless --resume {name} --budget {more_value(state)} goes on from its last checkpoint."
    if state.is_detached:
        told, next_text = f"; the run goes on: %mlless attach {name} shows it", ""
    elif not state.step:  # there may be no record, and there is no model
        told, next_text = " before the first step; nothing was trained", ""
    return {
        "status": "gone",
        "word": "Kernel restarted",
        "icon": "■",
        "is_live": False,
        "reason": f"The kernel was restarted{told}",
        "pending": [],
        "refusal": "",
        "next_text": next_text,
        "rate_text": NOTHING,
        "rate_note": "",
        "cannot": cannot,
    }


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _figures(state: RunState, last_workers: int = 0) -> dict[str, Any]:
    progress = f"step {state.step:,} · epoch {reached(state.epoch)}" if state.step else ""
    evaluated = state.validation_loss is not None
    newest = state.validation_loss if evaluated else state.loss
    last = rough_metric(newest) if state.is_live else metric(newest)
    # At the end the figure is that of the returned model, the best one.
    shown = metric(state.best.loss) if state.best and not state.is_live else last
    notes = [f"target {metric(state.target)}"] if state.target is not None else []
    notes += [f"last {last}"] if shown != last else []
    label = f"Validation {state.metric}" if evaluated or state.loss is None else f"Training {state.metric}"
    simulated = "simulated, " if state.is_simulated_price else "estimated, "
    priced = f" ({simulated}priced as {state.price_profile})" if state.price_profile else f" ({simulated[:-2]})"
    share = committed = None
    if state.budget_usd:
        share = min(state.spent_usd / state.budget_usd, 1.0)
        committed = min(max(state.committed_usd, state.spent_usd) / state.budget_usd, 1.0)
    workers = state.n_workers if state.is_live else last_workers  # at the end: those of the last step
    is_running = state.is_live and state.rate_usd_s > 0
    return {
        "about": " · ".join(part for part in (state.description, progress) if part),
        "metric_label": label,
        "metric_text": shown,
        "metric_note": ", ".join(notes),
        "best_text": best_text(state),
        "workers_text": str(workers) if workers else NOTHING,
        "workers_note": f"of {state.n_workers_started}" if state.n_workers_started else "",
        "spent_label": f"Spent{priced}",
        "spent_text": rounded(state.spent_usd) if state.is_live else usd(state.spent_usd),
        "spent_note": f"of {usd(state.budget_usd, trim=True)}" if state.budget_usd is not None else "no cap",
        "cap_text": "" if share is None or committed is None else _cap(share, committed),
        "spent_share": share,
        "committed_share": committed,
        "time_text": duration(state.time_s),
        "rate_text": f"{rounded(state.rate_usd_s * 3600)}" if is_running else NOTHING,
        "rate_note": "an hour" if is_running else "",
        "floor_text": _floor(state),
    }


def loss_title(metric_name: str) -> str:
    """The title of the loss's chart, with its unit: ``Loss (RMSE)``, ``Log loss``."""
    return _sentence(metric_name) if "loss" in metric_name else f"Loss ({metric_name})"


def best_text(state: RunState) -> str:
    """The best evaluation: ``best 0.8470 at epoch 64 (step 2,310)``, or ``best 0.8470, of NAME`` of an earlier run."""
    best = state.best
    if best and not best.step:
        return f"best {metric(best.loss)}, of {state.resumed_from}"
    return f"best {metric(best.loss)} at epoch {passes(best.epoch)} (step {best.step:,})" if best else ""


def base_text(state: RunState) -> str:
    """The label of the baseline: ``predicting the mean: 1.1260``."""
    return f"predicting the {constant_of(state)}: {metric(state.baseline_loss)}" if state.baseline_loss else ""


def is_base_in_range(low: float, high: float, baseline_loss: float | None) -> bool:
    """Whether the baseline is drawn beside losses from ``low`` to ``high``, see `BASE_IN_SIGHT`."""
    return baseline_loss is not None and baseline_loss <= high + BASE_IN_SIGHT * (high - low)


def is_cap_in_range(spent_usd: float, budget_usd: float | None) -> bool:
    """Whether the cap is drawn as a line above ``spent_usd``, the highest value drawn, see `CAP_IN_SIGHT`."""
    return budget_usd is not None and budget_usd <= CAP_IN_SIGHT * spent_usd


def _cap(spent: float, committed: float) -> str:
    return f"{percent(spent)} of the budget is spent, {percent(committed)} with what is committed"


def _floor(state: RunState) -> str:
    if not state.is_live or state.budget_usd is None or not state.committed_usd:
        return ""
    return f"The budget can go down to {usd(max(state.committed_usd, state.spent_usd))} (spent and committed)."


def exchange_of(recent: Rows) -> dict[str, Any] | None:
    """The exchange between workers over the newest rows: medians, as text and as shares of a step's time."""
    if not len(recent):
        return None
    # lists: for so few numbers sorting these takes a tenth of NumPy's time, and this is done for every batch of rows
    column = dict(zip(COLUMNS, recent.T.tolist(), strict=True))
    workers = [max(n, 1.0) for n in column["n_workers"]]
    sent, received = (_median([a / n for a, n in zip(column[name], workers, strict=True)]) for name in _SENT)
    share = _median(column["sent_fraction"])
    is_alone = _median(workers) == 1.0
    parts = [
        f"{size(sent)} out, {size(received)} in per worker and step",
        f"{percent(share)} of parameters sent",
    ]
    if is_alone and not sent:
        parts = ["one worker alone has nobody to exchange updates with"]
    # a row's times arrive with the next step, so a run's last row has none
    is_timed = any(map(math.isfinite, column["compute_s"]))
    times = {name: _median(column[f"{name}_s"]) if is_timed else 0.0 for name in ("compute", "exchange", "wait")}
    total = sum(times.values())
    return {
        "text": " · ".join(parts),
        "is_alone": is_alone,
        "n_steps": len(recent),
        "step_text": short_time(total),
        "parts": [[name, t / total if total > 0 else 0.0, short_time(t)] for name, t in times.items()],
    }


def _median(values: list[float]) -> float:
    """The median of the finite ``values``; NaN if there are none."""
    finite = [value for value in values if math.isfinite(value)]
    return statistics.median(finite) if finite else math.nan


def _cannot(state: RunState, stop_asked: bool) -> dict[str, str]:
    """Why each control is disabled; an empty sentence if it works."""
    ended = "" if state.is_live else "The run has ended."
    stopping = ended or ("The run is stopping." if stop_asked else "")
    scale_in = stopping
    if not stopping and state.status == "starting":
        scale_in = "The workers are starting."
    elif not stopping and state.n_workers <= 1:
        scale_in = "One worker is left."
    tune = stopping or ("The run has no auto-tuner." if state.tuner == "off" else "")
    return {"stop": stopping, "scale_in": scale_in, "budget": stopping, "tune": tune}


def line_of(state: RunState) -> str:
    """The run in one line, for logs and terminals."""
    view = _figures(state)
    parts = [f"{state.name or state.run_id}: {WORDS.get(state.status, state.status).lower()}"]
    if state.step:
        parts.append(f"step {state.step:,}, epoch {reached(state.epoch)}")
        last = metric(state.validation_loss if state.validation_loss is not None else state.loss)
        parts.append(f"{view['metric_label'].lower().replace('rmse', 'RMSE')} {last}")
    if state.best:
        parts.append(view["best_text"])
    if state.n_workers:
        parts.append(count(state.n_workers, "worker"))
    cap = f" of {usd(state.budget_usd, trim=True)}" if state.budget_usd is not None else ""
    parts.append(f"{view['spent_text']}{cap}{' simulated' if state.is_simulated_price else ''}")
    parts.append(view["time_text"])
    if too_bad := shortfall(state):
        parts.append(too_bad)
    return " · ".join(parts)
