"""What an author of synapses writes against."""
