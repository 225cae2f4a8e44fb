"""What `up` is made of: components that start, say ready, end and are restarted, and a guard over `up`
itself.
"""
