"""What a run tells: live, to those who watch it, and kept on disk for later."""
