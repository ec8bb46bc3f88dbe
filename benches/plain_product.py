"""The yardstick of the promises: the plain product of two lists of 255 hints, as in any script."""

from itertools import product

HINTS = [(mask, False) for mask in range(1, 256)]

best = None
for (first, first_preferred), (second, second_preferred) in product(HINTS, HINTS):
    mask = first & second
    preferred = first_preferred and second_preferred and first == second
    if mask and (best is None or (preferred, -mask.bit_count(), -mask) > best):
        best = preferred, -mask.bit_count(), -mask
