"""The definition of a training job: model, optimiser, data, protocol, budget and stop rules.

A `TrainingJob` is checked field by field when it is made; fields that the user left open are chosen from the data. No
module here does I/O, and nothing is launched or billed.
"""
