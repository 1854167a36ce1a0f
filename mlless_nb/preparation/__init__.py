"""Data preparation on functions: stored files become packed minibatches as map-reduce, and no process has all rows.

Stages: ``scan`` counts and checks the rows of byte ranges; ``sum`` finds the scale of the columns, if the model asks
for it; ``scatter`` sends each row to the function that makes its minibatch; ``cut`` makes minibatches; ``bundle`` joins
them in the format of `mlless_nb.data.prepare`.

::

    prepare.py    plans the stages and joins their results
    run.py        invokes and follows the functions, stage by stage, within the budget
    functions.py  one function, from its call to its report
    stages.py     the work of each stage
    rows.py       the rows as bytes, between ``scatter`` and ``cut``
    messages.py   calls and reports
"""
