"""The coordinator on Redis.

``coordinator`` implements the interface. ``rounds``, ``arrivals`` and ``frames`` are its part that runs in every step,
over a pipelined ``connection``; ``step_log`` reads the step log. Lua scripts do the operations that must be atomic.
"""
