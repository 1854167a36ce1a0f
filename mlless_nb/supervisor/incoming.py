"""What the supervisor hears: messages of workers and of the driver, and users' commands."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Mapping

from ..bus import Bus
from ..bus.messages import (
    BY_USER,
    HANDED_OVER,
    Command,
    Failed,
    FromWorker,
    Invocation,
    Invoked,
    Left,
    LetGo,
    Message,
    RateCut,
    Ready,
    Replaced,
    Started,
    StartedTwice,
    Trouble,
)
from ..errors import DecodeError
from ..exchange import SUPERVISOR, Coordinator, LostData, Plan
from ..job.sync import sync_from_json
from ..money.meter import NUSD
from ..plurals import count
from .bill import Bill
from .ending import UNHEARD
from .policy.policy import Policy
from .policy.victim import asked_to_leave
from .request_counts import amounts_of
from .starts import how, twice
from .successors import Successors
from .worker_watch import WorkerWatch

#: Why a command is carried out again: the server answered, and has no plan.
NOT_ANNOUNCED = "the run's data is gone: a command could not be announced"


class IncomingMessages:
    """Takes in the messages of one run.

    Parameters
    ----------
    invocation : Invocation
        The supervisor's.
    log : Coordinator
        Commands are announced in its plan.
    bus : Bus
    workers : WorkerWatch
    bill : Bill
    policy : Policy
    successors : Successors
    metric : str
        The loss's name in events.
    add_event : callable
        Takes the text of an event.
    is_stored : callable
        Whether the run's model is stored.

    Attributes
    ----------
    restart, base : int
        Number of the run's newest restart, and the step of its checkpoint.
    restored_step : int
        Step up to which the step log has none since its data was lost; 0 if it never was.
    is_succeeded : bool
        Whether another supervisor waits to take over.
    leaving : set of int
        Slots that have left or leave.
    replacements : dict of int to int
        How often the function of a slot was replaced.
    done : dict of str to str
        Results of commands that were carried out since it was emptied.
    """

    def __init__(
        self,
        invocation: Invocation,
        log: Coordinator,
        bus: Bus,
        workers: WorkerWatch,
        bill: Bill,
        policy: Policy,
        successors: Successors,
        metric: str,
        add_event: Callable[[str], None],
        is_stored: Callable[[], bool],
    ) -> None:
        self._n_workers, self._log, self._bus = invocation.n_workers, log, bus
        self._staleness = sync_from_json(invocation.sync).staleness
        self._workers, self._bill, self._policy = workers, bill, policy
        self._successors, self._metric, self._add_event = successors, metric, add_event
        self._is_stored = is_stored
        self.is_succeeded = self._is_past = False
        self.restart = self.base = self.restored_step = 0
        self._restarts: set[int] = set()  # their numbers, as far as they were heard
        self.leaving: set[int] = set()
        self.replacements: dict[int, int] = {}
        self.done: dict[str, str] = {}
        self._unhandled: deque[bytes] = deque()  # messages that were received
        self._commands_done: set[str] = set()
        self._chosen: dict[str, list[int]] = {}  # by a command's id, the slots that it removes
        self._asked: set[int] = set()  # slots whose removal a user has asked for
        self._starts: dict[int, Started] = {}
        self._learning_rate = math.inf  # after the newest cut

    def receive(self, timeout_s: float, *, is_past: bool = False) -> bool:
        """Wait at most ``timeout_s`` for messages and handle those that arrived; returns whether there were any.

        ``is_past``: they were handled by another supervisor before, so that nothing is announced again.
        """
        self._is_past = is_past
        if not self._unhandled:
            self._unhandled.extend(self._bus.receive("supervisor", timeout_s))
        has_heard = bool(self._unhandled)
        while self._unhandled:
            message: Message | None = None
            with contextlib.suppress(DecodeError):
                message = Message.decode(self._unhandled[0])
            if message is not None:
                self._handle(message)
            self._unhandled.popleft()  # only now: a server may have failed
        return has_heard

    def catch_up(self) -> None:
        """Learn, for a supervisor that takes over, what those before it have heard, and the newest restart.

        If the bus has only the messages that none of them has read, these must not be taken for older than the restart.
        """
        if not self._bus.tells_again("supervisor"):
            self._bill.miss_past()
            self.restart, self.base, _ = self._log.restart()
        while self.receive(0.0, is_past=True):  # the driver sends those again that were not carried out
            pass
        self.restart, self.base, _ = self._log.restart()

    def learn(self, plan: Plan, at_work: Mapping[int, str], time_s: float) -> None:
        """Learn, for a supervisor that takes over, of the ``plan`` and which invocations are ``at_work``, by slot.

        ``time_s``: seconds since the invocation.
        """
        self.leaving.update(plan.leaves)
        self._asked.update(slot for slots in plan.asked.values() for slot in slots)
        self._workers.started.update(at_work)
        self._successors.learn(at_work, time_s)

    def _handle(self, message: Message) -> None:
        """Handle a message; if a server fails, that is done again."""
        if isinstance(message, FromWorker):
            self.take(message)
        elif isinstance(message, Replaced):
            self._learn_of_restart(message)
        elif isinstance(message, LetGo):
            self._let_go(message)
        elif isinstance(message, Invoked):
            self._successors.note_invoked(message)
        elif isinstance(message, Command) and message.id not in self._commands_done and not self._is_past:
            self.done[message.id] = self._carry_out(message)
            self._commands_done.add(message.id)

    def _learn_of_restart(self, message: Replaced) -> None:
        """The driver has replaced functions: their slots are billed and watched anew."""
        if SUPERVISOR in message.slots:
            self._bill.change_supervisor(message.lost_s, message.invoked_s, is_lost=True)
            return
        if message.number in self._restarts:  # sent again, since the answer of the bus was lost
            return
        self.restart, self.base = message.number, message.step
        if message.log_after is not None:
            self.restored_step = message.log_after
            if self._is_past:  # also a bus that tells all again has lost what was before
                self._bill.miss_past()
        self._workers.replace(message.slots, message.invoked_s)
        for slot in [slot for slot, last in self._workers.ended.items() if self._is_needed_again(last)]:
            del self._workers.ended[slot]
        if message.log_after is not None:
            self._expect_again(message.step)
        for slot in message.slots:  # once no server can fail any more
            self.replacements[slot] = self.replacements.get(slot, 0) + 1
            self._bill.replace(slot, message.lost_s, message.invoked_s)
            self._successors.begin(slot, message.invoked_s)
        self._restarts.add(message.number)

    def _is_needed_again(self, last: Left | Failed) -> bool:
        """Whether a worker has ended that has not heard of a restart after which its slot takes part again.

        It may settle its money after the driver has looked who has: then nobody but its lease says that it is gone.
        """
        if not isinstance(last, Left) or last.status == "failed" or last.number >= self.restart:
            return False
        return last.slot in self._log.read_plan().active(self.base + 1, self._n_workers) and not self._is_stored()

    def _expect_again(self, step: int) -> None:
        """Watch those again that had ended and are needed after ``step``: the driver may not know of it."""
        active, ended = self._log.read_plan().active(step + 1, self._n_workers), self._workers.ended
        needed = ended.keys() & set(active) - self._log.settled(active)
        if needed and not self._is_stored():
            for slot in needed:
                del ended[slot]

    def miss_lost(self, time_s: float, step: int) -> None:
        """`miss` workers without a lease, ``time_s`` seconds after the run, and successors that wait for slots.

        ``step`` is the newest complete one.
        """
        for slot, reason in self._workers.check_leases(time_s, step):
            self.miss(slot, reason, time_s, step)
        self._successors.watch_waiting(time_s, step)

    def miss(self, slot: int, reason: str, time_s: float, step: int) -> None:
        """Tell the driver that the function of ``slot`` is lost; if its work is done, it has ended.

        That is so if the model is stored, or, since ``step`` is complete, it has handed all over. It may have been
        complete before the newest restart, to a step with it: then the driver decides, and answers by a restart or by
        letting it go.
        """
        step = min(step, self.base + 1) if self.restart else step
        has_handed_over = self._log.read_plan().has_handed_over(slot, step, self._staleness)
        if not has_handed_over and not self._is_stored():
            self._bus.send("driver", Trouble(slot, self.restart, reason, is_lost=True).encode())
            # Only now: a server may have refused to say whether the model is stored.
            self._workers.told(slot)
            return
        self._end(slot, time_s)

    def _let_go(self, message: LetGo) -> None:
        """Nobody goes back for lost functions: they have ended. A later restart may need them again."""
        if message.number == self.restart:
            for slot in message.slots:
                if slot not in self._workers.ended:
                    self._end(slot, message.lost_s)

    def _end(self, slot: int, time_s: float) -> None:
        """The function of ``slot`` was lost after its work was done."""
        self._bill.lose(slot, time_s)
        self._workers.ended[slot] = Left(slot, 0, 0, 0, 0.0, 0.0, "left", UNHEARD, number=self.restart)

    def take(self, message: FromWorker) -> None:
        """Take in a worker's message."""
        workers, n_workers = self._workers, self._n_workers
        if isinstance(message, Started):
            if self._bill.begin(message.slot, message.began_s, message.at_s):
                self._successors.hand_over(message.slot, message.began_s)
            self._successors.lifetimes.start(message.slot, message.began_s)
            self._bill.start_s = max(message.start_s, self._bill.start_s)
        if isinstance(message, Started) and workers.start(message.slot, message.began_s):
            self._starts[message.slot] = message
            if not self.restart:  # a worker that goes on from a checkpoint says so again
                lifetimes = self._successors.lifetimes
                lifetimes.start_s = max(message.start_s, lifetimes.start_s)
            if workers.have_all_started and not self.restart:
                self._add_event(f"{n_workers} of {count(n_workers, 'worker')} started{how(self._starts.values())}")
        elif isinstance(message, StartedTwice):
            self._bill.add(message.slot, message.spent_nusd)
            self._add_event(twice(message))
        elif isinstance(message, Ready):
            self._take_successor(message)
        elif isinstance(message, Left) and message.status == HANDED_OVER:
            self._successors.hand_over(message.slot, message.left_s)
            overlap_nusd = self._bill.hand_over(message.slot, message.left_s, *amounts_of(message))
            self._add_event(self._successors.told(message.slot, message.reason, overlap_nusd))
        elif isinstance(message, RateCut) and message.rate < self._learning_rate:
            self._learning_rate = message.rate  # several workers may report one cut
            self._add_event(
                f"Learning rate cut to {message.rate:.3g} at step {message.step}: {self._metric} had stopped falling"
            )
        elif isinstance(message, (Left, Failed)) and message.slot not in workers.ended:
            if self._is_needed_again(message):
                return
            workers.ended[message.slot] = message
            self._bill.close(message.slot, *amounts_of(message))
            if isinstance(message, Failed):
                workers.note_abort("failed", message.reason)
            elif message.status == "left":
                if message.slot in self._asked:  # the auto-tuner has told of its own
                    self._add_event(
                        f"Removed worker {message.slot} after step {message.step}: it costs nothing from here on"
                    )
            elif message.status == "failed" and not workers.have_all_ended:
                workers.abort(message.reason)  # the others must not wait for it

    def _take_successor(self, message: Ready) -> None:
        """A function waits to take over a slot: let the present one hand over after the next checkpoint."""
        if message.slot == SUPERVISOR:
            self._bill.change_supervisor(message.ready_s, message.began_s)
            # One that was paused may have recorded late who came in its place.
            self.is_succeeded = not self._is_past and not self._bill.supervisor.is_own(message.began_s)
        elif message.slot not in self._workers.ended:
            self._bill.succeed(message.slot, message.began_s)
            self._successors.wait(message.slot, message.began_s)
            if not self._is_past:
                self._log.announce_hand_over([message.slot])

    def announce_hand_overs(self, announced: Mapping[int, int], step: int) -> None:
        """Let functions hand over whose successors are waiting.

        Those that were ``announced`` for ``step``, the newest one that is complete, or a later one do so already.
        """
        slots = [slot for slot in self._bill.waiting if announced.get(slot, -1) < step]
        if slots:
            self._log.announce_hand_over(slots)

    def _carry_out(self, command: Command) -> str:
        """Carry out ``command``; returns why it was refused, "" if it was carried out."""
        if command.do == "stop":
            plan = self._log.announce_stop("stopped", BY_USER)
            if plan.stop_after is None:
                raise LostData(NOT_ANNOUNCED)
            self._workers.stop()
            self._add_event(f"Stopping after step {plan.stop_after}, as you asked")
        elif command.do == "budget":
            if not self._log.set_cap(command.nusd):
                reserved = self._log.money()[1]
                asked, least = command.nusd / NUSD, reserved / NUSD
                return f"a budget of ${asked:.6g}: it cannot go below ${least:.6f}, which is spent and committed"
            self._add_event(f"The budget is ${command.nusd / NUSD:.6g} now, as you asked")
        elif command.do == "scale_in":
            return self._scale_in(command)
        elif command.do == "tune":
            return self._policy.switch(bool(command.count))
        else:
            return f"{command.do!r} is not a command"
        return ""

    def _scale_in(self, command: Command) -> str:
        slots = self._chosen.get(command.id)  # if it is carried out again
        if slots is None:
            plan = self._log.read_plan()
            asked: list[int] | str = plan.asked.get(command.id, [])  # if a lost supervisor has carried it out
            asked = asked or asked_to_leave(command.slots, command.count, self._n_workers, plan.leaves)
            if isinstance(asked, str):
                return asked
            slots = self._chosen[command.id] = asked
        leaves = self._log.announce_leave(slots, command.id).leaves
        if not leaves.keys() >= set(slots):
            raise LostData(NOT_ANNOUNCED)
        self.leaving.update(leaves)
        self._asked.update(slots)
        for slot in slots:
            self._add_event(f"Removing worker {slot} after step {leaves[slot] - 1}, as you asked")
        self._policy.pause_for_user()
        return ""
