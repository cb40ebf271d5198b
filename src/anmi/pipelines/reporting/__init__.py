"""The report and the results."""
