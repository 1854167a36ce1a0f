"""Frames on Redis: the server of each frame, and the commands that store, read and delete frames."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

from ..protocol import Frame, FrameKey, RoundRequest, frame_key, frame_keys
from ..restarts import LostData
from .connection import PipelinedConnection

Command = tuple[Any, ...]


class Frames:
    """The frames of a job, as one worker writes and reads them.

    Parameters
    ----------
    lines : list of PipelinedConnection
        One for each server; the frames of ``slot`` are kept on number ``slot % len(lines)``.
    prefix : str
        Prefix of every key of the job.
    ttl_s : int
        Seconds until a frame expires.
    """

    def __init__(self, lines: list[PipelinedConnection], prefix: str, ttl_s: int) -> None:
        self._lines, self._prefix, self._ttl = lines, prefix, str(ttl_s * 1000)
        # Keys of frames by slot, oldest step first.
        self._kept: defaultdict[int, deque[tuple[int, dict[str, None]]]] = defaultdict(deque)

    def join(self, prefix: str) -> None:
        """From now on the keys of frames begin with ``prefix``; those kept so far are forgotten."""
        self._prefix = prefix
        self._kept.clear()

    def home(self, slot: int) -> PipelinedConnection:
        """The connection to the server that keeps the frames of ``slot``."""
        return self._lines[slot % len(self._lines)]

    def at_first(self, slots: list[int]) -> list[int]:
        """The slots among ``slots`` whose frames are on the first server."""
        return slots if len(self._lines) == 1 else [slot for slot in slots if self.home(slot) is self._lines[0]]

    def storing(self, part: RoundRequest) -> list[Command]:
        """Commands that store the frames, if another slot reads them, and delete those that all workers have read."""
        commands: list[Command] = []
        kept = self._kept[part.slot]
        if part.is_awaited:
            if not kept or kept[-1][0] != part.step:
                kept.append((part.step, {}))
            keys = kept[-1][1]
            for receiver, frame in part.outgoing.items():
                key = frame_key(self._prefix, part.round_id, part.slot, receiver)
                # NX: neither a repeated request nor a duplicate of this worker replaces a frame that was read.
                commands.append(("SET", key, frame, "NX", "PX", self._ttl))
                keys[key] = None
        newest = part.expired_step
        if kept and kept[0][0] <= newest and (old := [key for step, keys in kept if step <= newest for key in keys]):
            commands.append(("UNLINK", *old))
        return commands

    def forget(self, part: RoundRequest) -> None:
        """Forget the keys that the commands of `storing` deleted; to be called once these were carried out."""
        kept, newest = self._kept[part.slot], part.expired_step
        while kept and kept[0][0] <= newest:
            kept.popleft()

    def asking(self, part: RoundRequest, slots: list[int]) -> Command:
        """The command that reads the frames of ``slots`` in a round from one server."""
        return ("MGET", *frame_keys(self._prefix, part.round_id, slots, part.inbox))

    def fetch(self, part: RoundRequest, slots: list[int], found: dict[int, Frame | None]) -> list[Frame]:
        """The frames of ``slots``, in their order; those not in ``found`` are read, from all servers at once.

        Raises
        ------
        LostData
            One is missing.
        """
        asked: dict[PipelinedConnection, list[int]] = {}
        for slot in slots:
            if slot not in found:
                asked.setdefault(self.home(slot), []).append(slot)
        for line, there in asked.items():
            line.send([self.asking(part, there)])
        for line, there in asked.items():
            found.update(zip(there, line.read(views=True), strict=True))
        lost = [slot for slot in slots if found[slot] is None]
        if lost:
            raise LostData(f"the update of worker {lost[0]} in round {part.round_id} is gone from Redis")
        return [frame for slot in slots if (frame := found[slot]) is not None]


class Search:
    """Reads those of the frames named by ``keys`` that are published; their rounds need not be complete.

    Parameters
    ----------
    frames : Frames
    prefix : str
    keys : sequence of FrameKey
    """

    def __init__(self, frames: Frames, prefix: str, keys: Sequence[FrameKey]) -> None:
        self._prefix, self._keys = prefix, keys
        self._by_line: dict[PipelinedConnection, list[int]] = {}
        for number, (_, slot) in enumerate(keys):
            self._by_line.setdefault(frames.home(slot), []).append(number)

    def asking(self, line: PipelinedConnection) -> list[Command]:
        """The command that reads the frames on this server; empty if there are none."""
        names = [frame_key(self._prefix, *self._keys[number], None) for number in self._by_line.get(line, ())]
        return [("MGET", *names)] if names else []

    def found(self, first: PipelinedConnection) -> list[Frame | None]:
        """The frames in the order of the keys, None for missing ones. The command for ``first`` was sent already."""
        for line in self._by_line:
            if line is not first:
                line.send(self.asking(line))
        found: list[Frame | None] = [None] * len(self._keys)
        for line, numbers in self._by_line.items():
            for number, frame in zip(numbers, line.read(views=True), strict=True):
                found[number] = frame
        return found
