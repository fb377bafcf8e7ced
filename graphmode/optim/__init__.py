"""Optimizers, learning-rate schedules and weight averages that mean exactly what torch.optim's mean."""
