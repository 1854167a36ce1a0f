"""The exchange of updates over Redis: rounds of frames, and the coordination of a run."""
