"""Data preparation on functions: stored files become packed minibatches as map-reduce, and no process has all rows.

Stages: ``scan`` counts and checks the rows of byte ranges; ``sum`` finds the scale of the columns, if the model asks
for it; ``scatter`` writes each row to where its minibatch is made; ``cut`` makes minibatches; ``bundle`` puts them
together as `mlless_nb.data.prepare` stores them. `prepare` plans the stages, `run` invokes and follows their functions.
"""
