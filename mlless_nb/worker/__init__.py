"""One worker: its training loop, its replica of the parameters, its minibatches and its evaluations.

``loop`` runs the steps. ``replica`` holds the parameters and applies updates; ``algorithms/`` computes what a worker
contributes to a step. Sending and receiving updates is the job of `mlless_nb.exchange`, deciding which worker leaves
that of `mlless_nb.supervisor`.
"""
