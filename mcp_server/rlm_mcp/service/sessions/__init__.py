"""Sessions: their kernels, policies, budgets, forks, records and attachments."""
