/* SPDX-License-Identifier: Apache-2.0 */
/* Connected components by union and find, for `testbed.fabric.components`. */

static int32_t root_of(int32_t *parent, int32_t node) {
    while (parent[node] != node) {
        parent[node] = parent[parent[node]];
        node = parent[node];
    }
    return node;
}

/* Write the number of each node's component to `label`, numbered by their first nodes. */
KERNEL void label_components(int64_t n_edges, const int32_t a[n_edges], const int32_t b[n_edges],
                             int64_t n, int32_t label[n]) {
    for (int64_t i = 0; i < n; i++) label[i] = (int32_t)i;
    for (int64_t e = 0; e < n_edges; e++) {
        int32_t one = root_of(label, a[e]), other = root_of(label, b[e]);
        if (one < other) label[other] = one;
        else label[one] = other;
    }
    int32_t parts = 0;
    /* A root is its component's first node, and every parent is before its child: so a parent's
     * number is there already. */
    for (int64_t i = 0; i < n; i++) label[i] = label[i] == i ? parts++ : label[label[i]];
}
