"""The batches of an epoch: their plan and their padded tensors."""
