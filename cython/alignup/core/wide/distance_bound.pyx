"""A lower bound on the sum of distances within any set of so many nodes.

It is exact where distances form a hierarchy. Machines do form one: siblings on a board, boards on a
router, and so on. The distances are replaced by the largest hierarchy that nowhere exceeds them
(single linkage: a pair costs the smallest maximum over all paths between the two). Within a
hierarchy the best set of k leaves below a node is the best split over its two branches, so all
sizes are found in one pass from the leaves up.
"""

cdef int64_t UNREACHABLE = 0x3FFFFFFFFFFFFFFF


cdef void grow(Tree* tree, const int* nodes, int count, const int64_t* distances) noexcept nogil:
    """Build the hierarchy over the candidates `nodes`, merging the nearest first."""
    cdef int64_t pairs[64][64]
    cdef int roots[64]
    cdef int row, column, merge, near_row = 0, near_column = 0

    tree.leaves = count
    for row in range(count):
        roots[row] = row
        tree.sizes[row] = 1
        tree.single_costs[row] = distances[nodes[row] * 64 + nodes[row]]
        for column in range(count):
            pairs[row][column] = (
                distances[nodes[row] * 64 + nodes[column]]
                + distances[nodes[column] * 64 + nodes[row]]
            )

    for merge in range(count - 1):
        nearest(&pairs[0][0], roots, count, &near_row, &near_column)

        tree.left[merge] = roots[near_row]
        tree.right[merge] = roots[near_column]
        tree.heights[merge] = pairs[near_row][near_column]
        tree.sizes[count + merge] = tree.sizes[roots[near_row]] + tree.sizes[roots[near_column]]

        roots[near_row] = count + merge
        roots[near_column] = -1
        for column in range(count):
            pairs[near_row][column] = min(pairs[near_row][column], pairs[near_column][column])
            pairs[column][near_row] = pairs[near_row][column]


cdef void nearest(
    const int64_t* pairs, const int* roots, int count, int* near_row, int* near_column
) noexcept nogil:
    """Find the nearest pair of trees that are not yet merged."""
    cdef int row, column
    cdef int64_t best = UNREACHABLE

    for row in range(count):
        if roots[row] < 0:
            continue
        for column in range(row + 1, count):
            if roots[column] >= 0 and pairs[row * 64 + column] < best:
                best = pairs[row * 64 + column]
                near_row[0] = row
                near_column[0] = column


cdef int64_t least_of(Tree* tree, uint64_t taken, uint64_t undecided, int size) noexcept nogil:
    """Return the least cost of `size` candidates.

    All that are taken are among them, the others are undecided ones. `taken` and `undecided` are
    sets of candidates, not of NUMA nodes.
    """
    cdef int node, merge, largest_size, k, from_left, left, right
    cdef int64_t cost
    cdef uint64_t bit

    for node in range(tree.leaves):
        bit = (<uint64_t>1) << node
        tree.least_costs[node][0] = UNREACHABLE if taken & bit else 0
        tree.least_costs[node][1] = (
            tree.single_costs[node] if (taken | undecided) & bit else UNREACHABLE
        )

    for merge in range(tree.leaves - 1):
        node = tree.leaves + merge
        left = tree.left[merge]
        right = tree.right[merge]
        largest_size = min(size, tree.sizes[node])
        for k in range(largest_size + 1):
            tree.least_costs[node][k] = UNREACHABLE

        for from_left in range(min(tree.sizes[left], largest_size) + 1):
            if tree.least_costs[left][from_left] >= UNREACHABLE:
                continue

            for k in range(min(tree.sizes[right], largest_size - from_left) + 1):
                if tree.least_costs[right][k] >= UNREACHABLE:
                    continue

                cost = (
                    tree.least_costs[left][from_left]
                    + tree.least_costs[right][k]
                    + tree.heights[merge] * from_left * k
                )
                tree.least_costs[node][from_left + k] = min(
                    tree.least_costs[node][from_left + k], cost
                )

    node = 2 * tree.leaves - 2
    return tree.least_costs[node][size] if size <= tree.sizes[node] else UNREACHABLE
