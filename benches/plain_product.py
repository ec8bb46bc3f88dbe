"""The yardstick of the promises: the plain product of two lists of 255 hints, as anybody would write it in a script."""

from itertools import product

HINTS = [(mask, False) for mask in range(1, 256)]

best = None
for (one, one_preferred), (other, other_preferred) in product(HINTS, HINTS):
    mask = one & other
    preferred = one_preferred and other_preferred and one == other
    if mask and (best is None or (preferred, -mask.bit_count(), -mask) > best):
        best = preferred, -mask.bit_count(), -mask
