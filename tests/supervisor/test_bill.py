"""The bill of a run: the sum of what its functions say, in whatever order that is heard."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

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
            bill.note_requests(slot, storage)
    costs = bill.by_component(4.0)
    assert costs["storage"] == spent_before + 70 + 3 * 6000
    assert costs["workers"] == 3 * 84_000
    assert sum(costs.values()) == bill.spent(4.0)


def test_requests_to_the_frame_store_are_a_part_of_their_own() -> None:
    prepaid = Prepaid(RATES, 0, lambda: 0.0, lambda: 0, with_servers=True)
    bill, plain = (Bill(RATES, 2, prepaid, 0, store) for store in ("dynamodb", "storage"))
    for one in (bill, plain):
        one.note_requests(0, 500)
        one.close(0, spent=9000, storage=600, stored=400)
    assert (bill.by_component(1.0)["storage"], bill.by_component(1.0)["dynamodb"]) == (200, 400)
    assert plain.by_component(1.0)["storage"] == 600
    assert sum(bill.by_component(1.0).values()) == sum(plain.by_component(1.0).values()) == bill.spent(1.0)
