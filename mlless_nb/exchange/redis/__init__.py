"""The coordinator on Redis.

``coordinator`` implements the interface; ``rounds``, ``arrivals`` and ``frames`` are its part that runs in every step,
over a pipelined ``connection``. The Lua scripts are the operations that must be atomic.
"""
