"""Draws machines, and who holds what on a node.

Boxes as data become SVG, which becomes HTML pages of one file.
"""
