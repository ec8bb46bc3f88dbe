"""Draws machines, and who holds what on a node: boxes as data, then SVG, then HTML pages of one file."""
