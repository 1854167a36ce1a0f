"""Who takes which minibatches: each as often as any other, few of them anew when workers leave."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlless_nb.data.prepare import Manifest
from mlless_nb.worker.shrinking_schedule import Shares


def manifest_of(n_minibatches: int, shards: tuple[int, ...] | None = None) -> Manifest:
    return Manifest(
        key="k",
        kind="ratings",
        name="n",
        is_synthetic=False,
        n=n_minibatches,
        size=1,
        n_minibatches=n_minibatches,
        shape=(1, 1),
        mean=0.0,
        shards=shards or (0, n_minibatches),
        bundles=(0, n_minibatches),
        minibatch_bytes=1,
        n_touched=1,
    )


def all_of(n_minibatches: int, n_workers: int) -> list[Shares]:
    return [Shares(manifest_of(n_minibatches), slot, n_workers) for slot in range(n_workers)]


@settings(max_examples=30)
@given(n_minibatches=st.integers(1, 60), n_workers=st.integers(1, 12))
def test_the_first_epoch_takes_every_minibatch(n_minibatches: int, n_workers: int) -> None:
    shares = all_of(n_minibatches, n_workers)
    n_steps = -(-n_minibatches // n_workers)
    taken = [[one.take(1)[0] for one in shares] for _ in range(n_steps)]
    assert set().union(*taken) == set(range(n_minibatches))
    n_own = n_minibatches // n_workers
    for slot, indices in enumerate(zip(*taken[:n_own], strict=True)):  # side by side: read in few requests
        assert list(indices) == list(range(slot * n_own, (slot + 1) * n_own))


@settings(max_examples=30)
@given(n_minibatches=st.integers(1, 40), n_workers=st.integers(1, 9))
def test_no_minibatch_is_taken_more_often_than_another(n_minibatches: int, n_workers: int) -> None:
    counts: Counter[int] = Counter()
    for one in all_of(n_minibatches, n_workers):
        counts.update(one.take(n_minibatches))
    assert counts == dict.fromkeys(range(n_minibatches), n_workers)


@settings(max_examples=40)
@given(data=st.data())
def test_after_departures_the_shares_of_the_rest_hold_everything_once(data: st.DataObject) -> None:
    n_workers = data.draw(st.integers(2, 9))
    n_minibatches = data.draw(st.integers(1, 60))
    by_shard = n_minibatches >= n_workers and data.draw(st.booleans())
    cuts = data.draw(st.permutations(range(1, n_minibatches)))[: n_workers - 1]
    shards = (0, *sorted(cuts), n_minibatches)
    manifest = manifest_of(n_minibatches, shards if by_shard else None)
    active = list(range(n_workers))
    shares = {slot: Shares(manifest, slot, n_workers, by_shard=by_shard) for slot in active}
    while True:
        parts = [index for slot in active for index in shares[slot].part]
        assert sorted(parts) == list(range(n_minibatches))
        owners = shares[active[0]].owners
        assert all(shares[slot].owners == owners for slot in active)
        for slot in active if by_shard else ():  # an owner is the only one to know its users
            n_owned = owners.count(slot)
            assert owners[slot] == slot
            assert n_owned >= n_workers // len(active)
            own = {index for shard in range(n_workers) if owners[shard] == slot for index in manifest.shard(shard)}
            assert own <= set(shares[slot].part)
        if len(active) == 1:
            break
        n_steps, n_local = data.draw(st.integers(0, 20)), data.draw(st.integers(1, 3))
        for slot in active:
            ahead = shares[slot].next(n_local)
            assert [shares[slot].take(n_local) for _ in range(n_steps)][:1] in ([], [ahead])
        n_left = data.draw(st.integers(1, len(active) - 1))
        stay = sorted(data.draw(st.permutations(active))[:n_left])
        for slot in stay:
            shares[slot].reassign(stay)
        active = stay
    counts = Counter(shares[active[0]].take(n_minibatches))
    assert set(counts.values()) == {1}


@pytest.mark.parametrize("n_minibatches", [64, 160, 1600])
def test_who_stays_keeps_its_minibatches(n_minibatches: int) -> None:
    shares = all_of(n_minibatches, 8)
    seen = [set(one.take(n_minibatches // 8)) for one in shares]
    assert [len(one) for one in seen] == [n_minibatches // 8] * 8
    stay = [0, 1, 2, 4, 5, 6, 7]
    n_new = 0
    for slot in stay:
        shares[slot].reassign(stay)
        n_new += len(set(shares[slot].take(n_minibatches)) - seen[slot])
    # What the leaving had, once, and what is common to seven workers, for each that lacks it.
    n_common = n_minibatches % 7
    assert n_new == n_minibatches // 8 + 6 * n_common


def test_the_next_is_the_one_after_the_last_taken_whoever_leaves() -> None:
    shares = all_of(32, 4)
    for one in shares:
        one.take(3)
    due = shares[2].next(1)
    shares[2].reassign([0, 2, 3])
    assert shares[2].take(1) == due


def test_who_takes_over_other_shards_mixes_them_with_its_own() -> None:
    manifest = manifest_of(40, (0, 10, 20, 30, 40))
    share = Shares(manifest, 2, 4, by_shard=True)
    share.take(3)
    share.reassign([2])
    shards = [index // 10 for index in share.take(40)]
    assert all(set(shards[begin : begin + 4]) == {0, 1, 2, 3} for begin in range(0, 40, 4))
