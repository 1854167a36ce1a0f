"""The coordinator on Redis.

``coordinator`` implements the interface; ``client`` makes its connections, and ``standing`` reads where a run stands.
``rounds``, ``arrivals`` and ``frames`` are its part that runs in every step, over a pipelined ``connection``;
``step_log`` reads the step log. Lua scripts do the operations that must be atomic.
"""
