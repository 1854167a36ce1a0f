"""Every error that mlless_nb raises on purpose.

::

    MllessError
    ├── JobError (ValueError)          a field of the job is wrong; nothing was launched or billed
    │   ├── ArgumentError (TypeError)  a field is unknown, missing or given twice
    │   ├── DataError                  the dataset is wrong
    │   └── BudgetError                the budget is too small
    ├── CommandError (ValueError)      a command to a run cannot be carried out; the run is unaffected
    ├── ServiceError                   Redis, RabbitMQ, the object storage or the backend failed
    ├── DecodeError (ValueError)       bytes from another process or a file are invalid
    ├── MissingFileError (FileNotFoundError)   there is no such file
    ├── ModelError (TypeError)         a trained model of this kind lacks what was asked of it
    └── RunError                       a training run failed; the last checkpoint's model is kept

    WaitInterrupted (KeyboardInterrupt)    an interrupt ended a wait for a run or a sweep
    DataWarning (UserWarning)              a dataset can be trained on, but looks wrong
    JobWarning (UserWarning)               a job can be run, but a field of it looks wrong

To print one clear line::

    try:
        run = mlless_nb.train(job)
    except mlless_nb.MllessError as error:
        print(error)
"""

from __future__ import annotations

import warnings
from typing import Any

from .one_line import OneLine
from .redaction import scrubbed


class MllessError(OneLine, Exception):
    """Root of the tree: catch it to catch everything mlless_nb raises on purpose. Its text holds no known secret.

    A notebook or script that does not catch it shows its one line; see `mlless_nb.one_line`.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*(scrubbed(each) if isinstance(each, str) else each for each in args))


class JobError(MllessError, ValueError):
    """A field of the job is wrong; it was checked before anything was launched or billed.

    Parameters
    ----------
    field : str
        The field as the user wrote it, e.g. ``"minibatch"``.
    value : object
        Its value; shown shortened.
    valid : str
        What would be valid, as the end of "must be ...".
    """

    def __init__(self, field: str, value: object, valid: str) -> None:
        value = scrubbed(value) if isinstance(value, str) else value
        self.field, self.value, self.valid = field, value, valid
        shown = " ".join(repr(value).split())  # one line, also for a table
        if len(shown) > 80:
            shown = f"{shown[:38]}...{shown[-39:]}"  # a path says most at its end
        super().__init__(" ".join(f"{field}={shown}: must be {valid}".splitlines()))  # of columns' names, for instance

    def __reduce__(self) -> tuple[type[JobError], tuple[str, object, str]]:
        return type(self), (self.field, self.value, self.valid)


class ArgumentError(JobError, TypeError):
    """A call has an unknown field, lacks one, or gives one twice."""


class DataError(JobError):
    """The dataset is malformed: ids out of range, NaN, labels that the model cannot take, or no rows at all."""


class BudgetError(JobError):
    """The budget does not cover one step, or is below the money already spent and committed."""


class CommandError(MllessError, ValueError):
    """A command to a run cannot be carried out; the run continues unchanged."""


class ServiceError(MllessError):
    """Redis, RabbitMQ, the object storage or the functions backend failed or is not reachable."""


class DecodeError(MllessError, ValueError):
    """Bytes from another process or a file (a frame, a minibatch, a message) are invalid."""


class MissingFileError(MllessError, FileNotFoundError):
    """There is no file at a path that the user named."""


class ModelError(MllessError, TypeError):
    """A trained model is asked for what models of its kind do not have."""


class RunError(MllessError):
    """A training run failed; the message says what failed, in which worker and step, and what to do."""


class WaitInterrupted(OneLine, KeyboardInterrupt):
    """An interrupt ended the waiting for a run or a sweep; the message says what becomes of it."""


class DataWarning(UserWarning):
    """A dataset can be trained on, but looks wrong; the message says what was found and what would be valid."""


class JobWarning(UserWarning):
    """A job can be run, but a field of it looks wrong; the message says what would be better, and why."""


# Show them at every call, not once a line, because a cell is run again after its data changed. The user's filters win.
for _category in (DataWarning, JobWarning):
    warnings.simplefilter("always", _category, append=True)
