"""Scale-in as a user specifies it: whether and how the supervisor removes workers while the run trains."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..errors import JobError
from ..validation import check_choice, check_flag, is_number, specification

KNEES = ("slope", "kneedle")
GLOBAL_MINIBATCHES = ("keep", "shrink")
POLICIES = ("auto", "paper")


@specification
@dataclass(frozen=True)
class ScaleIn:
    """When workers are removed, and how the global minibatch changes then.

    With ``global_minibatch="keep"``, the default, the remaining workers take over the shards of those that leave: every
    step uses the same rows as before, so the loss does not suffer. The tuner then decides by time and dollars alone. It
    predicts step times with fewer workers from those measured so far. It removes workers where dollars x time to the
    end of the run fall; if only the budget ends the run, it removes workers where a step becomes cheaper, so that the
    budget buys more steps. After a removal that did not pay, no further worker is removed.

    With ``"shrink"``, as in the paper, each worker keeps the size of its minibatches, and the global minibatch shrinks.
    A step then moves the model nearly as far, until the noise of a small global minibatch shows. Past the knee of the
    loss curve the tuner projects the loss with all workers and with the remaining ones. It removes one more worker if
    the projected loss is worse by less than ``threshold``, dollars x time to the target (or to another end of the run)
    fall, and the target can still be reached. A removal whose outcome is worse than projected makes the next one
    harder. A quarter of the workers always stays. The effect of fewer workers on the loss is learnt from workers that
    have left, and a removed worker cannot be added again: the loss may stay higher.

    With ``policy="paper"`` the tuner is the papers' own: the reference curve and its step time are fixed at the knee,
    one worker is removed there at once, and one more every ``interval_s`` seconds as long as the projected loss is
    worse by less than ``threshold``. The global minibatch shrinks, as theirs does. It is there for comparison: it knows
    neither targets nor dollars.

    The worker whose replica has the highest loss leaves, and the slowest one if replicas are equal. They are compared
    on held-out rows that are common to all; where users are sharded, without what a worker has learnt of its own users.

    Decisions depend on the time that steps take, so two runs with one seed may remove workers at different steps: use
    ``ScaleIn.off()`` for models that are the same bit for bit. A removal by the user (``run.scale_in``) pauses the
    tuner until ``run.resume_tuner()``.

    Parameters
    ----------
    interval_s : float
        With "shrink": the longest interval between two removals, seconds > 0; in short runs the interval is shorter (12
        steps, or 5 % of the remaining run).
    horizon_s : float
        With "shrink": how far ahead losses are compared, seconds > 0; less in short runs (50 steps, or 10 % of the
        remaining run), and never further than the loss curve is reliable.
    threshold : float
        With "shrink": ``S`` in [0, 1], the most by which the projected loss may be worse, relative to that with all
        workers.
    knee : {"slope", "kneedle"}
        With "shrink": how the knee is found: by the curve's slope relative to its mean slope, or by Kneedle.
    enabled : bool
        Whether workers are removed automatically; False for `ScaleIn.off`.
    global_minibatch : {"keep", "shrink"}, optional
        Whether a step keeps its number of rows when the tuner or a user removes workers. None: "keep", and "shrink"
        with ``policy="paper"``.
    policy : {"auto", "paper"}
        The rules by which workers are removed.

    References
    ----------
    MLLess (Middleware and journal), scale-in auto-tuner; Satopaa et al., "Finding a 'Kneedle' in a Haystack" (2011).
    """

    interval_s: float = 20.0
    horizon_s: float = 10.0
    threshold: float = 0.02
    knee: str = "slope"
    enabled: bool = True
    # Replaced by a word when it is made.
    global_minibatch: str | None = None
    policy: str = "auto"

    def __post_init__(self) -> None:
        check_choice("ScaleIn.policy", self.policy, POLICIES)
        if self.global_minibatch is None:
            object.__setattr__(self, "global_minibatch", "shrink" if self.policy == "paper" else "keep")
        for name in ("interval_s", "horizon_s"):
            if not is_number(value := getattr(self, name)) or value <= 0:
                raise JobError(f"ScaleIn.{name}", value, "a finite number of seconds > 0")
        if not is_number(self.threshold) or not 0 <= self.threshold <= 1:
            raise JobError("ScaleIn.threshold", self.threshold, "a number between 0 and 1, e.g. 0.02")
        check_choice("ScaleIn.knee", self.knee, KNEES)
        check_choice("ScaleIn.global_minibatch", self.global_minibatch, GLOBAL_MINIBATCHES)
        if self.policy == "paper" and self.global_minibatch != "shrink":
            raise JobError("ScaleIn.global_minibatch", self.global_minibatch, "'shrink' with policy='paper'")
        check_flag("ScaleIn.enabled", self.enabled)

    @classmethod
    def off(cls) -> ScaleIn:
        """Workers are removed only by the user."""
        return cls(enabled=False)

    def to_json(self) -> dict[str, Any]:
        """The specification as plain JSON."""
        return asdict(self)
