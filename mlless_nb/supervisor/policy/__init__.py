"""The supervisor's decisions, as pure functions of a run's history: which worker to remove and when, and forecasts.

``policy`` is the entry. ``cost_scale_in`` removes workers when time and cost fall; ``scale_in`` is the tuner of the
MLLess paper. The other modules fit curves to the loss and measure step times for them. Nothing here does I/O.
"""
