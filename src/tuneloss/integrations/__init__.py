"""Doors to other libraries, one a file; each is imported only by those who use it."""
