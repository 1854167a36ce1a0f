"""Frames as items of a DynamoDB table of the job's own; ``store="dynamodb"`` or ``"dynamodb://eu-west-1"``.

Credentials, and the region if none is given, are those that boto3 finds: on AWS Lambda, those of the function's role.

An item is at most 400 KiB, so larger frames are stored in parts. Deleting an item costs as much as writing it, and
dropping the table costs nothing: so frames stay in the table until the run ends, and the table is dropped then.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from ...errors import JobError, ServiceError
from ...money import Rates
from ...storage.objects import ObjectStore
from ..protocol import Frame
from . import parts
from .base import FrameStore, Usage, register_store, shown

#: An item's limit is 400 KiB with its names and its key: `ITEM_BYTES` leaves 9,600 bytes for them.
ITEM_BYTES = 400_000
#: Most items of one request to write and to read, and most bytes of either (16 MiB, less the requests' own).
WRITTEN_AT_ONCE, READ_AT_ONCE, BYTES_AT_ONCE = 25, 100, 15_000_000
#: Bytes of one write unit and of one read unit (strongly consistent, as all workers must see what was written).
WRITE_UNIT_BYTES, READ_UNIT_BYTES = 1024, 4096
#: Seconds that the table may take to be there, and that refused items are tried again.
CREATED_WITHIN_S, PATIENCE_S = 120.0, 60.0
#: First and longest pause before refused items are tried again, seconds.
PAUSES_S = (0.05, 2.0)
#: AWS' codes for a table that is not there, and for one that is being made or dropped, or is there already.
GONE, BUSY = "ResourceNotFoundException", "ResourceInUseException"
REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
#: Tables of runs by name, which ends in the run's id; and their tag, that of all that is made on AWS.
TABLE = re.compile(r"mlless-\d{8}-\d{6}-[0-9a-f]{8}")
TAG = "mlless-nb"


@register_store("dynamodb")
class DynamoDBStore(FrameStore):
    """Items of a table that is billed on demand: by write units and read units."""

    max_frame_bytes = 1 << 30
    form = "'dynamodb'"
    component = "dynamodb"
    package, extra = "boto3", "dynamodb"
    goes_missing = "the DynamoDB table"
    expires = False
    pauses_s = (0.01, 0.2)  # a read that finds nothing is billed too

    def __init__(self, prefix: str, objects: ObjectStore, address: str = "") -> None:
        super().__init__(prefix, objects, address)
        # DynamoDB takes no other characters; a prefix has braces around the job's id.
        self._table = re.sub(r"[^a-zA-Z0-9_.-]", "", prefix.rstrip(":").replace(":", "-"))
        self._made: Any = None

    @classmethod
    def check_address(cls, store: str, address: str) -> None:
        """See `FrameStore`."""
        if "://" in store and not REGION.fullmatch(address):
            raise JobError("store", shown(store), "'dynamodb', or with a region: 'dynamodb://eu-west-1'")

    @classmethod
    def address_for_functions(cls, address: str, prefix: str) -> str:
        """See `FrameStore`. The region in which this process makes the table: functions may run in another one."""
        import boto3  # an extra
        from botocore.exceptions import BotoCoreError

        try:
            found = address or boto3.Session().region_name or ""
        except BotoCoreError:  # `check` tells it
            found = ""
        return found if REGION.fullmatch(found) else ""  # else it is none of AWS'

    @property
    def _client(self) -> Any:
        if self._made is None:
            import boto3  # an extra
            from botocore.config import Config

            config = Config(retries={"max_attempts": 8, "mode": "standard"}, connect_timeout=5, read_timeout=30)
            self._made = self._asked(
                "open", lambda: boto3.client("dynamodb", region_name=self.address or None, config=config)
            )
        return self._made

    @staticmethod
    def _asked(what: str, request: Any) -> Any:
        """The answer to a request; its failure as a ServiceError of one line."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return request()
        except (BotoCoreError, ClientError) as error:
            raise ServiceError(f"DynamoDB ({what}): {' '.join(str(error).split())}") from error

    # -- the table

    def check(self) -> None:
        """See `FrameStore`; JobError if boto3 finds no region, or no credentials."""
        from botocore.exceptions import NoCredentialsError, NoRegionError

        store = f"dynamodb://{self.address}" if self.address else "dynamodb"
        try:
            self._status()
        except ServiceError as error:
            if isinstance(error.__cause__, NoRegionError):
                valid = "with a region, e.g. 'dynamodb://eu-west-1'; boto3 finds none (AWS_DEFAULT_REGION)"
                raise JobError("store", store, valid) from error
            if isinstance(error.__cause__, NoCredentialsError):
                valid = "used where boto3 finds credentials; it finds none (AWS_ACCESS_KEY_ID, AWS_PROFILE, or a role)"
                raise JobError("store", store, valid) from error
            raise

    def create(self) -> None:
        """See `FrameStore`. Takes some ten seconds, in which nothing is billed.

        A run whose data on Redis was lost makes its table again, while DynamoDB still drops the one before.
        """
        try:
            self._create()
        except ServiceError as error:
            if _code_of(error) != BUSY:
                raise
            if self._status() in ("DELETING", ""):
                self._await("table_not_exists")
                self._create()
        self._await("table_exists")

    def _create(self) -> None:
        request = {
            "TableName": self._table,
            "AttributeDefinitions": [{"AttributeName": "k", "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": "k", "KeyType": "HASH"}],
            "BillingMode": "PAY_PER_REQUEST",
            "Tags": [{"Key": TAG, "Value": version("mlless_nb")}],
        }
        self._asked("create_table", lambda: self._client.create_table(**request))

    def _status(self) -> str:
        """AWS' word for what the table is; "" if there is none."""
        try:
            found = self._asked("describe_table", lambda: self._client.describe_table(TableName=self._table))
        except ServiceError as error:
            if _code_of(error) == GONE:
                return ""
            raise
        return str(found["Table"]["TableStatus"])

    def is_there(self) -> bool:
        """See `FrameStore`."""
        return self._status() not in ("", "DELETING")

    def _await(self, what: str) -> None:
        waiter = {"Delay": 1, "MaxAttempts": int(CREATED_WITHIN_S)}
        self._asked(
            "describe_table",
            lambda: self._client.get_waiter(what).wait(TableName=self._table, WaiterConfig=waiter),
        )

    def clear(self) -> int:
        """See `FrameStore`. Drops the table, and counts as one."""
        try:
            self._drop()
        except ServiceError as error:
            code = _code_of(error)
            if code == GONE:
                return 0  # the run failed before it was made
            if code != BUSY:
                raise
            self._await("table_exists")  # the run ended while it was made
            self._drop()
        return 1

    def _drop(self) -> None:
        self._asked("delete_table", lambda: self._client.delete_table(TableName=self._table))

    # -- frames

    def put_many(self, frames: Mapping[str, bytes]) -> None:
        """See `FrameStore`."""
        items = {
            name: item for key, frame in frames.items() for name, item in parts.cut(key, frame, ITEM_BYTES).items()
        }
        # The first item of a frame tells of the others: it is written once these are.
        for some in ([name for name in items if name not in frames], list(frames)):
            for names in _batches(some, WRITTEN_AT_ONCE):
                self._write({name: items[name] for name in names})
        units = sum(-(-_item_bytes(name, item) // WRITE_UNIT_BYTES) for name, item in items.items())
        self.count(n_puts=len(frames), put_bytes=sum(map(len, frames.values())), write_units=units)

    def _write(self, items: Mapping[str, bytes]) -> None:
        wanted = [{"PutRequest": {"Item": {"k": {"S": name}, "v": {"B": item}}}} for name, item in items.items()]
        for _ in _pauses("write"):
            request = {self._table: wanted}
            answer = self._asked(
                "batch_write_item", lambda request=request: self._client.batch_write_item(RequestItems=request)
            )
            wanted = answer.get("UnprocessedItems", {}).get(self._table, [])
            if not wanted:
                return

    def get_many(self, keys: Sequence[str]) -> list[Frame | None]:
        """See `FrameStore`."""
        items = self._read(keys)
        further = [one for key in keys if key in items for one in parts.further_keys(key, items[key])]
        items |= self._read(further)
        found = [parts.joined(key, items) for key in keys]
        asked = [*keys, *further]
        # A read that finds nothing is billed as one unit.
        units = sum(-(-_item_bytes(name, items.get(name, b"")) // READ_UNIT_BYTES) for name in asked)
        got_bytes = sum(len(frame) for frame in found if frame is not None)
        self.count(n_gets=len(keys), got_bytes=got_bytes, read_units=units)
        return found

    def _read(self, names: Sequence[str]) -> dict[str, bytes]:
        items: dict[str, bytes] = {}
        for some in _batches(names, READ_AT_ONCE):
            wanted: dict[str, Any] = {"Keys": [{"k": {"S": name}} for name in some], "ConsistentRead": True}
            for _ in _pauses("read"):
                request = {self._table: wanted}
                answer = self._asked(
                    "batch_get_item", lambda request=request: self._client.batch_get_item(RequestItems=request)
                )
                for item in answer["Responses"].get(self._table, []):
                    items[item["k"]["S"]] = bytes(item["v"]["B"])
                wanted = answer.get("UnprocessedKeys", {}).get(self._table, {})
                if not wanted:
                    break
        return items

    def delete_many(self, keys: Sequence[str]) -> None:
        """Nothing: see the module."""

    # -- what they cost

    @classmethod
    def expected(cls, n_puts: int, n_gets: int, put_bytes: int, got_bytes: int) -> Usage:
        """See `FrameStore`."""
        written, read = n_puts + put_bytes // WRITE_UNIT_BYTES, n_gets + got_bytes // READ_UNIT_BYTES
        usage = super().expected(n_puts, n_gets, put_bytes, got_bytes)
        return usage._replace(write_units=written, read_units=read)

    @classmethod
    def price_nusd(cls, usage: Usage, rates: Rates) -> int:
        """See `FrameStore`."""
        return rates.store_nusd(cls.component, write=usage.write_units, read=usage.read_units)

    def close(self) -> None:
        """See `FrameStore`."""
        client, self._made = self._made, None
        if client is not None:
            client.close()


def _code_of(error: ServiceError) -> str:
    """AWS' code of the error behind ``error``, "" if there is none."""
    return str(getattr(error.__cause__, "response", {}).get("Error", {}).get("Code", ""))


def _item_bytes(name: str, item: bytes) -> int:
    """Size of an item as it is billed: its key and its value with the names of both."""
    return len(name.encode()) + len(item) + 2


def _batches(names: Sequence[str], at_once: int) -> Iterator[list[str]]:
    """``names`` in order, as many together as one request takes if each item has the full size."""
    at_once = min(at_once, BYTES_AT_ONCE // ITEM_BYTES)
    for first in range(0, len(names), at_once):
        yield list(names[first : first + at_once])


def _pauses(what: str) -> Iterator[None]:
    """Tries of a request that was carried out in part, with growing pauses; ServiceError after `PATIENCE_S`."""
    give_up_at, (pause_s, longest_s) = time.monotonic() + PATIENCE_S, PAUSES_S
    while True:
        yield
        if time.monotonic() > give_up_at:
            raise ServiceError(f"DynamoDB ({what}): items are refused for {PATIENCE_S:g} s: is the table throttled?")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, longest_s)
