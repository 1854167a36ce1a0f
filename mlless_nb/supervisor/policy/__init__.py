"""The supervisor's policy: pure functions and small state machines, history in, decisions out."""
