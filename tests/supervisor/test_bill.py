"""The bill of a run: the sum of what its functions say, in whatever order that is heard."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mlless_nb.exchange.frame_count import FrameCount
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.budget import Prepaid
from mlless_nb.supervisor.bill import Bill

RATES = Rates(price_profile("aws-lambda-x86"), 1769)


@given(
    told=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5000)), max_size=20),
    goodbye_at=st.lists(st.integers(0, 20), min_size=3, max_size=3),
)
def test_what_is_read_after_a_goodbye_takes_nothing_off_the_bill(
    told: list[tuple[int, int]], goodbye_at: list[int]
) -> None:
    """Steps are read from the log and goodbyes from the bus: the last steps may come after the goodbyes."""
    prepaid = Prepaid(RATES, 0, lambda: 0.0, lambda: 70, with_servers=True)
    bill = Bill(RATES, 3, prepaid, spent_before := 1100)
    for moment in range(21):
        for slot, at in enumerate(goodbye_at):
            if at == moment:
                bill.close(slot, spent=90_000, storage=6000)
        for slot, storage in told[moment : moment + 1]:
            bill.note_requests(slot, (storage,))
    costs = bill.by_component(4.0)
    assert costs["storage"] == spent_before + 70 + 3 * 6000
    assert costs["workers"] == 3 * 84_000
    assert sum(costs.values()) == bill.spent(4.0)


def test_requests_to_the_frame_store_are_a_part_of_their_own() -> None:
    prepaid = Prepaid(RATES, 0, lambda: 0.0, lambda: 0, with_servers=True)
    bill, plain = (Bill(RATES, 2, prepaid, 0, store) for store in ("dynamodb", "storage"))
    for one in (bill, plain):
        one.note_requests(0, (500,))
        one.close(0, spent=9000, storage=600, stored=400)
    assert (bill.by_component(1.0)["storage"], bill.by_component(1.0)["dynamodb"]) == (200, 400)
    assert plain.by_component(1.0)["storage"] == 600
    assert sum(bill.by_component(1.0).values()) == sum(plain.by_component(1.0).values()) == bill.spent(1.0)


def test_frames_of_every_function_that_had_a_slot_count_as_far_as_it_told() -> None:
    prepaid = Prepaid(RATES, 0, lambda: 0.0, lambda: 0, with_servers=True)
    bill = Bill(RATES, 2, prepaid, 0, "dynamodb")
    bill.note_requests(0, (500, 4, 8, 40, 80), 8.0)
    bill.replace(0, 10.0, 12.0)
    bill.note_requests(0, (700, 5, 10, 50, 100), 9.0)  # of the lost one
    bill.note_requests(0, (300, 1, 2, 10, 20), 13.0)
    bill.succeed(1, 13.0)
    bill.hand_over(1, 14.0, spent=9000, storage=400, stored=300, frames=FrameCount(7, 14, 70, 140))
    bill.note_requests(1, (350, 6, 12, 60, 120), 11.0)  # read after its last word
    bill.close(1, spent=9000, storage=100, stored=100, frames=FrameCount(2, 4, 20, 40))
    bill.close(0, spent=9000, storage=600, stored=500, frames=FrameCount(3, 6, 30, 60))
    assert bill.store_use == {"n_puts": 17, "n_gets": 34, "put_bytes": 170, "got_bytes": 340, "nusd": 900}


def test_a_supervisor_that_did_not_hear_of_earlier_functions_bills_their_slots_from_the_start() -> None:
    """It billed the newest function of each slot alone once that had ended: with RabbitMQ, half of a long run."""
    prepaid = Prepaid(RATES, 0, lambda: 5.0, lambda: 0, with_servers=True)
    bill = Bill(RATES, 2, prepaid, 0, began_s=90.0, invoked_s=88.0)
    bill.miss_past()
    bill.succeed(0, 99.0)
    bill.hand_over(0, 100.0, spent=RATES.function_nusd(40.0) + 600, storage=600, stored=0)
    bill.close(0, spent=RATES.function_nusd(2.0), storage=0)
    bill.close(1, spent=RATES.function_nusd(3.0), storage=0)
    spans = RATES.function_nusd(100.0) + RATES.function_nusd(2.0) + RATES.function_nusd(95.0)
    assert bill.by_component(95.0)["workers"] == spans


def test_functions_that_are_replaced_are_billed_until_they_were_lost_and_from_when_they_were_invoked() -> None:
    prepaid = Prepaid(RATES, 0, lambda: 0.0, lambda: 0, with_servers=True)
    bill = Bill(RATES, 2, prepaid, 0)
    bill.note_requests(0, (500,))
    bill.replace(0, 10.0, 12.0)
    bill.note_requests(0, (300,), 13.0)
    bill.note_requests(0, (400,), 9.0)  # of the lost one
    costs = bill.by_component(20.0)
    spans = RATES.lost_nusd(10.0) + RATES.function_nusd(8.0) + RATES.function_nusd(20.0)
    assert (costs["workers"], costs["storage"]) == (spans, 800)
    # One that had ended is not billed twice.
    bill.close(1, spent=9000, storage=1000)
    bill.replace(1, 30.0, 30.0)
    costs = bill.by_component(30.0)
    assert costs["workers"] == RATES.lost_nusd(10.0) + RATES.function_nusd(18.0) + 8000 + RATES.function_nusd(0.0)
    assert costs["storage"] == 1800


def test_a_lost_function_is_billed_when_the_one_in_its_place_is_heard_first() -> None:
    prepaid = Prepaid(RATES, 0, lambda: 0.0, lambda: 0, with_servers=True)
    bill = Bill(RATES, 1, prepaid, 0)
    bill.begin(0, 2.0)
    bill.begin(0, 29.0)
    bill.replace(0, 27.0, 27.0)
    spans = RATES.lost_nusd(25.0) + RATES.function_nusd(6.0)
    assert bill.by_component(35.0)["workers"] == spans
    bill.replace(0, 40.0, 41.0)  # and that one, too
    spans = RATES.lost_nusd(25.0) + RATES.lost_nusd(11.0) + RATES.function_nusd(4.0)
    assert bill.by_component(45.0)["workers"] == spans


def test_a_function_is_billed_from_its_start_and_not_from_the_call_that_asked_for_it() -> None:
    prepaid = Prepaid(RATES, 0, lambda: 0.0, lambda: 0, with_servers=True)
    bill = Bill(RATES, 2, prepaid, 0, began_s=0.5)
    assert bill.by_component(10.0)["workers"] == 2 * RATES.function_nusd(10.0)  # it is not known yet
    bill.begin(0, 0.7)
    bill.begin(1, 0.9)
    costs = bill.by_component(10.0)
    assert costs["workers"] == RATES.function_nusd(10.0 - 0.7) + RATES.function_nusd(10.0 - 0.9)
    assert costs["supervisor"] == RATES.function_nusd(9.5)
    assert costs["redis"] == RATES.servers_nusd(10.0 + RATES.tail_s)
    bill.replace(0, 20.0, 21.0)
    bill.begin(0, 20.5)  # of the lost one, heard late
    bill.begin(0, 21.5)
    bill.close(1, spent=0, storage=0)
    bill.begin(1, 1.0)  # it has ended
    assert bill.by_component(30.0)["workers"] == RATES.lost_nusd(20.0 - 0.7) + RATES.function_nusd(30.0 - 21.5)


def test_requests_of_a_lost_function_to_a_store_that_bills_them_are_estimated() -> None:
    prepaid = Prepaid(RATES, 0, lambda: 0.0, lambda: 0, with_servers=True)
    bill = Bill(RATES, 2, prepaid, 0, "s3", lost_nusd=RATES.requests_nusd(1, 1))
    bill.note_requests(0, (500,))
    bill.replace(0, 10.0, 12.0)
    assert bill.by_component(20.0)["storage"] == 500 + RATES.requests_nusd(1, 1)


def test_a_supervisor_that_takes_over_bills_those_before_it() -> None:
    prepaid = Prepaid(RATES, 0, lambda: 0.0, lambda: 0, with_servers=True)
    third = Bill(RATES, 0, prepaid, 0, began_s=30.5, invoked_s=30.0)
    third.change_supervisor(10.0, 10.2, is_lost=True)
    third.change_supervisor(31.0, 30.5)  # the second one waited until this one was ready
    spans = RATES.lost_nusd(10.0) + RATES.function_nusd(20.8) + RATES.function_nusd(9.5)
    assert third.by_component(40.0)["supervisor"] == spans
    assert third.spent(40.0) == sum(third.by_component(40.0).values())
    # The message that tells of the newest change is under way.
    late = Bill(RATES, 0, prepaid, 0, began_s=30.5, invoked_s=30.0)
    late.change_supervisor(10.0, 10.2, is_lost=True)
    spans = RATES.lost_nusd(10.0) + RATES.lost_nusd(19.8) + RATES.function_nusd(9.5)
    assert late.by_component(40.0)["supervisor"] == spans
    late.change_supervisor(28.0, 30.0, is_lost=True)
    assert late.by_component(40.0)["supervisor"] == spans - RATES.lost_nusd(19.8) + RATES.lost_nusd(17.8)
    # A broker delivers messages once: then only the time is known, and who had a slot first is billed, too.
    untold = Bill(RATES, 1, prepaid, 0, invoked_s=30.0)
    untold.miss_past()
    untold.begin(0, 29.0)
    assert untold.by_component(40.0)["workers"] == RATES.function_nusd(40.0)
    alone = Bill(RATES, 0, prepaid, 0, began_s=30.5, invoked_s=30.0)
    assert alone.by_component(40.0)["supervisor"] == RATES.lost_nusd(30.0) + RATES.function_nusd(9.5)


def test_the_driver_that_concludes_a_run_bills_each_supervisor_once_and_all_from_the_start() -> None:
    """It billed itself for the whole run, beside the supervisors that it had heard of."""
    prepaid = Prepaid(RATES, 0, lambda: 40.0, lambda: 0, with_servers=True)
    bill = Bill(RATES, 1, prepaid, 0, began_s=1.2)
    bill.stand_in()
    assert bill.by_component(40.0)["supervisor"] == RATES.function_nusd(40.0)
    bill.change_supervisor(10.0, 10.2)
    assert bill.by_component(40.0)["supervisor"] == RATES.function_nusd(10.0) + RATES.function_nusd(40.0 - 10.2)
    bill.miss_past()
    bill.close(0, spent=RATES.function_nusd(5.0), storage=0)  # the function that had the slot last
    assert bill.by_component(40.0)["workers"] == RATES.function_nusd(40.0)


def test_a_successor_is_billed_beside_the_function_that_hands_over_to_it() -> None:
    prepaid = Prepaid(RATES, 0, lambda: 0.0, lambda: 0, with_servers=True)
    bill = Bill(RATES, 1, prepaid, 0)
    bill.invoke(0, 49.9)
    assert bill.waiting == []
    assert bill.by_component(60.0)["workers"] == RATES.function_nusd(60.0) + RATES.function_nusd(60.0 - 49.9)
    bill.succeed(0, 50.0)
    assert bill.waiting == [0]
    assert bill.by_component(60.0)["workers"] == RATES.function_nusd(60.0) + RATES.function_nusd(10.0)
    overlap = bill.hand_over(0, 70.0, spent=70_000, storage=5000, stored=0)
    assert overlap == RATES.function_nusd(20.0)
    assert (bill.waiting, bill.n_running) == ([], 1)
    costs = bill.by_component(80.0)
    assert (costs["workers"], costs["storage"]) == (65_000 + RATES.function_nusd(30.0), 5000)


def test_a_hand_over_to_a_successor_of_which_only_an_earlier_supervisor_has_heard() -> None:
    prepaid = Prepaid(RATES, 0, lambda: 0.0, lambda: 0, with_servers=True)
    bill = Bill(RATES, 1, prepaid, 0)
    bill.hand_over(0, 60.0, spent=70_000, storage=5000, stored=0)
    assert bill.n_running == 1
    bill.close(0, spent=30_000, storage=1000)
    assert (bill.by_component(80.0)["workers"], bill.by_component(80.0)["storage"]) == (94_000, 6000)


def test_successors_that_start_in_vain_as_the_run_ends_are_billed_for_their_start() -> None:
    prepaid = Prepaid(RATES, 0, lambda: 0.0, lambda: 0, with_servers=True)
    bill = Bill(RATES, 1, prepaid, 0)
    bill.start_s = 2.5
    for slot in (0, -1):
        bill.invoke(slot, 59.0)
    costs = bill.by_component(60.0)
    both = RATES.function_nusd(60.0) + RATES.function_nusd(2.5)
    assert (costs["workers"], costs["supervisor"]) == (both, both)
    bill.change_supervisor(60.5, 59.1)  # it has started, and takes over
    assert bill.by_component(61.0)["supervisor"] == RATES.function_nusd(60.5) + RATES.function_nusd(61.0 - 59.1)


def test_successors_on_a_cloud_of_which_nobody_hears_are_billed_what_they_were_granted_for_their_start() -> None:
    prepaid = Prepaid(RATES, 0, lambda: 0.0, lambda: 0, with_servers=True)
    bill = Bill(RATES, 1, prepaid, 0)
    bill.start_s = 2.5
    bill.invoke(0, 59.0, granted_s=10.0)
    before = bill.spent(60.0) - bill.by_component(60.0)["supervisor"] - bill.by_component(60.0)["redis"]
    assert before == RATES.function_nusd(60.0) + RATES.function_nusd(2.5)  # it may still be heard
    assert bill.by_component(60.0)["workers"] == RATES.function_nusd(60.0) + RATES.function_nusd(10.0)
    assert bill.by_component(70.0)["workers"] == RATES.function_nusd(70.0) + RATES.function_nusd(11.0)
    bill.succeed(0, 59.5)
    assert bill.by_component(70.0)["workers"] == RATES.function_nusd(70.0) + RATES.function_nusd(10.5)


def test_a_successor_whose_slot_leaves_before_it_takes_over_is_billed_until_then() -> None:
    prepaid = Prepaid(RATES, 0, lambda: 0.0, lambda: 0, with_servers=True)
    bill = Bill(RATES, 2, prepaid, 0)
    bill.invoke(1, 40.0)
    bill.succeed(1, 45.0)
    bill.close(1, spent=50_000, storage=0)
    bill.spent(50.0)
    workers = 50_000 + RATES.function_nusd(5.0)
    assert bill.by_component(50.0)["workers"] == workers + RATES.function_nusd(50.0)
    assert bill.by_component(1000.0)["workers"] == workers + RATES.function_nusd(1000.0)
    assert bill.waiting == []


def test_a_successor_whose_slot_is_lost_before_it_takes_over_is_billed_until_then() -> None:
    prepaid = Prepaid(RATES, 0, lambda: 0.0, lambda: 0, with_servers=True)
    bill = Bill(RATES, 1, prepaid, 0)
    bill.invoke(0, 40.0)
    bill.succeed(0, 45.0)
    bill.replace(0, 49.0, 50.0)
    bill.spent(50.0)
    lost = RATES.lost_nusd(49.0) + RATES.function_nusd(5.0)
    assert bill.by_component(60.0)["workers"] == lost + RATES.function_nusd(10.0)


def test_successors_that_an_earlier_supervisor_has_heard_of_count_as_invoked() -> None:
    prepaid = Prepaid(RATES, 0, lambda: 0.0, lambda: 0, with_servers=True)
    bill = Bill(RATES, 2, prepaid, 0)
    bill.count_invoked(3)
    bill.count_invoked(2)
    assert bill.n_invoked == 3
    bill.n_invoked = None
    bill.count_invoked(4)
    assert bill.n_invoked is None


def test_a_successor_in_whose_place_another_one_was_invoked_is_billed_until_then() -> None:
    prepaid = Prepaid(RATES, 0, lambda: 0.0, lambda: 0, with_servers=True)
    for slot, component in ((0, "workers"), (-1, "supervisor")):
        bill = Bill(RATES, 1, prepaid, 0)
        bill.invoke(slot, 40.0)
        bill.invoke(slot, 47.0)
        assert bill.is_estimate
        bill.spent(47.0)
        bill.succeed(slot, 48.0)
        own, both = RATES.function_nusd(60.0), RATES.function_nusd(7.0) + RATES.function_nusd(12.0)
        assert bill.by_component(60.0)[component] == own + both


def test_a_successor_that_could_not_be_invoked_costs_nothing() -> None:
    prepaid = Prepaid(RATES, 0, lambda: 0.0, lambda: 0, with_servers=True)
    bill = Bill(RATES, 1, prepaid, 0)
    bill.invoke(0, 40.0, granted_s=10.0)
    bill.forget(0)
    assert bill.by_component(60.0)["workers"] == RATES.function_nusd(60.0)
    bill.invoke(0, 50.0)
    bill.succeed(0, 51.0)
    bill.forget(0)  # it was, after all
    assert bill.waiting == [0]


def test_a_successor_that_takes_the_slot_of_a_lost_function_leaves_that_on_the_bill() -> None:
    """It says so before the driver says who was replaced; what the lost one had lived was in no bill."""
    prepaid = Prepaid(RATES, 0, lambda: 0.0, lambda: 0, with_servers=True)
    bill = Bill(RATES, 1, prepaid, 0)
    assert not bill.begin(0, 0.5, 0.6)
    bill.invoke(0, 48.0)
    bill.succeed(0, 50.0)
    assert not bill.begin(0, 0.51, 52.0)  # the run goes on from a checkpoint
    assert bill.begin(0, 50.01, 60.0)
    spans = RATES.lost_nusd(60.0 - 0.51) + RATES.function_nusd(70.0 - 50.01)
    assert (bill.waiting, bill.by_component(70.0)["workers"]) == ([], spans)
    bill.replace(0, 59.9, 59.9)
    assert bill.by_component(70.0)["workers"] == spans
    bill.replace(0, 80.0, 81.0)  # that one is lost, too
    spans = RATES.lost_nusd(60.0 - 0.51) + RATES.lost_nusd(80.0 - 50.01) + RATES.function_nusd(4.0)
    assert bill.by_component(85.0)["workers"] == spans
