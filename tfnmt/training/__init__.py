"""Loss, schedule, the update and what happens between updates."""
