"""The supervisor: it reads the steps of a run, decides, and keeps the bill."""
