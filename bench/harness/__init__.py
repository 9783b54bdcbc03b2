"""What all measurements share: datasets, environments, worker processes, meters, figures."""
