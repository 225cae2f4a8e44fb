"""Traces and metrics through OpenTelemetry where it is asked for; nothing, at no cost, where it is not."""
