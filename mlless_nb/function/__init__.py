"""What is true inside any function, whichever role it has: its entry, what it imports ahead, its memory."""
