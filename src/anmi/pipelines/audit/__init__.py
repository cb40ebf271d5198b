"""Measuring the mining on planted truth, before anything is trained."""
