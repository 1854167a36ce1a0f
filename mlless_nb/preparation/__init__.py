"""Data preparation on functions: stored files become packed minibatches as map-reduce, and no process has all rows.

Stages: ``scan`` counts and checks the rows of byte ranges, ``scatter`` writes each row to where its minibatch is made,
``cut`` makes minibatches, and ``bundle`` puts them together as `mlless_nb.data.prepare` stores them. `prepare` plans
the stages, `run` invokes and follows their functions.
"""
