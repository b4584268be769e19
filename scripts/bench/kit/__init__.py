"""What the benchmark drivers share. Standard library only."""
