"""Convex piecewise-linear functions as sums of hinges.

lookup.py   the bin of each of many numbers, compiled
"""
