"""Shards that are taken over whole: every step takes the same minibatches, whoever is left."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worker.test_shrinking_schedule import manifest_of

from mlless_nb.worker.minibatch_schedule import SCHEDULES, Shards


@settings(max_examples=60)
@given(data=st.data())
def test_a_step_takes_the_minibatches_that_it_takes_when_nobody_leaves(data: st.DataObject) -> None:
    n_workers = data.draw(st.integers(1, 9))
    n_minibatches = data.draw(st.integers(n_workers, 60))
    by_shard = data.draw(st.booleans())
    cuts = data.draw(st.permutations(range(1, n_minibatches)))[: n_workers - 1]
    manifest = manifest_of(n_minibatches, (0, *sorted(cuts), n_minibatches) if by_shard else None)
    active = list(range(n_workers))
    stays, leaves = ({slot: Shards(manifest, slot, n_workers, by_shard=by_shard) for slot in active} for _ in range(2))
    n_local = data.draw(st.integers(1, 3))
    while True:
        for _ in range(data.draw(st.integers(1, 12))):
            ahead = {slot: leaves[slot].next(n_local) for slot in active}
            taken = {slot: leaves[slot].take(n_local) for slot in active}
            assert taken == ahead
            expected = [stays[slot].take(n_local) for slot in range(n_workers)]
            for number in range(n_local):
                now = sorted(index for slot in active for index in taken[slot][number])
                assert now == sorted(index for groups in expected for index in groups[number])
        held = [len(leaves[slot].held) for slot in active]
        assert sum(held) == n_workers
        assert max(held) - min(held) <= 1 or len(active) == n_workers
        assert all(leaves[slot].owners == leaves[active[0]].owners for slot in active)
        assert sorted(index for slot in active for index in leaves[slot].part) == sorted(
            index for slot in range(n_workers) for index in stays[slot].part
        )
        if by_shard:
            assert all(
                leaves[slot].shard_of(index) in leaves[slot].held for slot in active for index in leaves[slot].part
            )
        if len(active) == 1:
            break
        n_left = data.draw(st.integers(1, len(active) - 1))
        active = sorted(data.draw(st.permutations(active))[:n_left])
        for slot in active:
            assert leaves[slot].reassign(active)
            assert not leaves[slot].reassign(active)


@pytest.mark.parametrize("name", SCHEDULES)
def test_who_stays_knows_for_how_many_it_works(name: str) -> None:
    shares = SCHEDULES[name](manifest_of(24), 1, 4)
    assert (len(shares.held), shares.n_all) == (1, 4)
    assert shares.take(2) == [[6], [7]]
    assert shares.reassign([1, 3])
    assert (len(shares.held), shares.n_all) == ((2, 4) if name == "keep" else (1, 2))


@pytest.mark.parametrize("name", SCHEDULES)
@given(data=st.data())
def test_a_run_that_goes_on_takes_what_would_have_come(name: str, data: st.DataObject) -> None:
    n_workers = data.draw(st.integers(1, 9))
    n_minibatches = data.draw(st.integers(n_workers, 60))
    by_shard = data.draw(st.booleans())
    cuts = data.draw(st.permutations(range(1, n_minibatches)))[: n_workers - 1]
    manifest = manifest_of(n_minibatches, (0, *sorted(cuts), n_minibatches) if by_shard else None)
    n_before, staying = data.draw(st.integers(0, 200)), sorted({0, n_workers - 1})
    for slot in staying:
        whole, rest = (SCHEDULES[name](manifest, slot, n_workers, by_shard=by_shard) for _ in range(2))
        whole.take(n_before)
        rest.skip(n_before)
        assert whole.take(7) == rest.take(7)
        assert whole.reassign(staying) == rest.reassign(staying)
        assert whole.take(70) == rest.take(70)
