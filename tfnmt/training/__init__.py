"""Training: loss, schedule, optimizer, step, checkpoints, callbacks and distribution."""
