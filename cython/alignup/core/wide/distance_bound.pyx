"""A lower bound on the sum of distances within any set of so many nodes, exact where distances form a hierarchy.

Machines do form one: siblings on a board, boards on a router, and so on. The distances are replaced by the largest
hierarchy that nowhere exceeds them (single linkage: a pair costs the smallest maximum over all paths between the
two). Within a hierarchy the best set of k leaves below a node is the best split over its two branches, so all sizes
are found in one pass from the leaves up.
"""

cdef int64_t UNREACHABLE = 0x3FFFFFFFFFFFFFFF


cdef void grow(Tree* tree, const int* nodes, int count, const int64_t* distances) noexcept nogil:
    """Build the hierarchy over the candidates `nodes`, merging the nearest first."""
    cdef int64_t pairs[64][64]
    cdef int roots[64]
    cdef int one, other, merge, near_one = 0, near_other = 0
    tree.leaves = count
    for one in range(count):
        roots[one] = one
        tree.sizes[one] = 1
        tree.own[one] = distances[nodes[one] * 64 + nodes[one]]
        for other in range(count):
            pairs[one][other] = distances[nodes[one] * 64 + nodes[other]] + distances[nodes[other] * 64 + nodes[one]]
    for merge in range(count - 1):
        nearest(&pairs[0][0], roots, count, &near_one, &near_other)
        tree.left[merge] = roots[near_one]
        tree.right[merge] = roots[near_other]
        tree.heights[merge] = pairs[near_one][near_other]
        tree.sizes[count + merge] = tree.sizes[roots[near_one]] + tree.sizes[roots[near_other]]
        roots[near_one] = count + merge
        roots[near_other] = -1
        for other in range(count):
            pairs[near_one][other] = min(pairs[near_one][other], pairs[near_other][other])
            pairs[other][near_one] = pairs[near_one][other]


cdef void nearest(const int64_t* pairs, const int* roots, int count, int* near_one, int* near_other) noexcept nogil:
    """Find the nearest pair of trees that are not yet merged."""
    cdef int one, other
    cdef int64_t best = UNREACHABLE
    for one in range(count):
        if roots[one] < 0:
            continue
        for other in range(one + 1, count):
            if roots[other] >= 0 and pairs[one * 64 + other] < best:
                best = pairs[one * 64 + other]
                near_one[0] = one
                near_other[0] = other


cdef int64_t least_of(Tree* tree, uint64_t taken, uint64_t undecided, int size) noexcept nogil:
    """Return the least cost of `size` candidates: all that are taken, the others out of the undecided ones.

    `taken` and `undecided` are sets of candidates, not of NUMA nodes.
    """
    cdef int node, merge, most, k, from_left, left, right
    cdef int64_t cost
    cdef uint64_t bit
    for node in range(tree.leaves):
        bit = (<uint64_t>1) << node
        tree.least[node][0] = UNREACHABLE if taken & bit else 0
        tree.least[node][1] = tree.own[node] if (taken | undecided) & bit else UNREACHABLE
    for merge in range(tree.leaves - 1):
        node = tree.leaves + merge
        left = tree.left[merge]
        right = tree.right[merge]
        most = min(size, tree.sizes[node])
        for k in range(most + 1):
            tree.least[node][k] = UNREACHABLE
        for from_left in range(min(tree.sizes[left], most) + 1):
            if tree.least[left][from_left] >= UNREACHABLE:
                continue
            for k in range(min(tree.sizes[right], most - from_left) + 1):
                if tree.least[right][k] >= UNREACHABLE:
                    continue
                cost = tree.least[left][from_left] + tree.least[right][k] + tree.heights[merge] * from_left * k
                tree.least[node][from_left + k] = min(tree.least[node][from_left + k], cost)
    node = 2 * tree.leaves - 2
    return tree.least[node][size] if size <= tree.sizes[node] else UNREACHABLE
