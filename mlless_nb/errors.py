"""Every error that mlless_nb raises on purpose.

::

    MllessError
    ├── JobError (ValueError)          a field of the job is wrong; nothing was launched or billed
    │   ├── ArgumentError (TypeError)  there is no such field, or one is missing
    │   ├── DataError                  the dataset is
    │   └── BudgetError                the budget is
    ├── CommandError (ValueError)      a command to a run cannot be carried out; the run is unaffected
    ├── ServiceError                   Redis, RabbitMQ, the object storage or the backend does not do its part
    ├── DecodeError (ValueError)       bytes from elsewhere are not what they claim to be
    └── RunError                       a training run failed; the last checkpoint's model is kept

    DataWarning (UserWarning)          a dataset that can be trained on was probably meant otherwise

A caller who wants one clear line writes::

    try:
        run = mlless_nb.train(job)
    except mlless_nb.MllessError as error:
        print(error)
"""

from __future__ import annotations

import warnings


class MllessError(Exception):
    """Root of the tree: catch it to catch everything mlless_nb raises on purpose."""


class JobError(MllessError, ValueError):
    """A field of the job is wrong, found before anything was launched or billed.

    Parameters
    ----------
    field : str
        The field as the user wrote it, e.g. ``"minibatch"``.
    value : object
        What it was set to; shown shortened.
    valid : str
        What would be valid, as the end of "must be ...".
    """

    def __init__(self, field: str, value: object, valid: str) -> None:
        self.field, self.value, self.valid = field, value, valid
        shown = " ".join(repr(value).split())  # one line, whatever a table prints
        if len(shown) > 80:
            shown = shown[:77] + "..."
        super().__init__(f"{field}={shown}: must be {valid}")

    def __reduce__(self) -> tuple[type[JobError], tuple[str, object, str]]:
        return type(self), (self.field, self.value, self.valid)


class ArgumentError(JobError, TypeError):
    """A call has a field that there is not, lacks one, or gives one twice."""


class DataError(JobError):
    """The dataset is malformed: ids out of range, NaN, labels that the model cannot take, or no rows at all."""


class BudgetError(JobError):
    """The budget cannot pay for one step, or is below what is spent and committed."""


class CommandError(MllessError, ValueError):
    """A command to a run cannot be carried out; the run goes on as it was."""


class ServiceError(MllessError):
    """Redis, RabbitMQ, the object storage or the functions backend does not do its part."""


class DecodeError(MllessError, ValueError):
    """Bytes from elsewhere (a frame, a minibatch, a message) are not what they claim to be."""


class RunError(MllessError):
    """A training run failed; its sentence names what, which worker, which step and what to do."""


class DataWarning(UserWarning):
    """A dataset can be trained on and was probably meant otherwise; says what was seen and what would be valid."""


# At every call, not once a line: a cell is run again after its data was changed. Filters that a person sets go before.
warnings.simplefilter("always", DataWarning, append=True)
