/* SPDX-License-Identifier: Apache-2.0 */
/* The links of paths and the paths of links, for `analysis.solvers.incidence`. */
#include "incidence.h"

/* Number the ids that occur, those of `ids` shifted right, in ascending order: `local`, zeros for
 * each id, gets its number or -1. Return how many occur. */
KERNEL int64_t number_links(int64_t n_entries, const int32_t ids[n_entries], int64_t shift,
                            int64_t n_ids, int32_t local[n_ids]) {
    int32_t n_links = 0;
    for (int64_t e = 0; e < n_entries; e++) local[ids[e] >> shift] = 1;
    for (int64_t i = 0; i < n_ids; i++) local[i] = local[i] ? n_links++ : -1;
    return n_links;
}

/* Write the links of each path, ascending and once each, and count the paths of each link in
 * link_ptr[link + 1], zeros before. Return the number of entries. */
KERNEL int64_t sort_links(int64_t n_paths, const int64_t ptr[n_paths + 1], const int32_t *ids,
                          int64_t shift, const int32_t *local, int64_t path_ptr[n_paths + 1],
                          int32_t *links, int64_t *link_ptr) {
    int64_t end = 0;
    path_ptr[0] = 0;
    for (int64_t j = 0; j < n_paths; j++) {
        int64_t begin = end;
        for (int64_t e = ptr[j]; e < ptr[j + 1]; e++) { /* insertion sort: paths are short */
            int32_t link = local[ids[e] >> shift];
            int64_t at = end;
            while (at > begin && links[at - 1] > link) at--;
            if (at > begin && links[at - 1] == link) continue;
            for (int64_t o = end; o > at; o--) links[o] = links[o - 1];
            links[at] = link;
            link_ptr[link + 1]++;
            end++;
        }
        path_ptr[j + 1] = end;
    }
    return end;
}

/* Write the paths of each link, ascending. `place` is where those of each link begin, and is
 * changed. */
KERNEL void list_paths(int64_t n_paths, const int64_t path_ptr[n_paths + 1], const int32_t *links,
                       int64_t *place, int32_t *paths) {
    for (int64_t j = 0; j < n_paths; j++)
        for (int64_t e = path_ptr[j]; e < path_ptr[j + 1]; e++)
            paths[place[links[e]]++] = (int32_t)j;
}

/* Mark each row of a CSR array that has a marked member. */
KERNEL void mark_any(int64_t n, const int64_t ptr[n + 1], const int32_t *members,
                     const bool *marked, bool hit[n]) {
    for (int64_t j = 0; j < n; j++) {
        int64_t e = ptr[j];
        while (e < ptr[j + 1] && !marked[members[e]]) e++;
        hit[j] = e < ptr[j + 1];
    }
}

/* Write the sum of a value over the members of each row of a CSR array. */
KERNEL void sum_integers(int64_t n, const int64_t ptr[n + 1], const int32_t *members,
                         const int64_t *value, int64_t total[n]) {
    for (int64_t j = 0; j < n; j++) {
        int64_t sum = 0;
        for (int64_t e = ptr[j]; e < ptr[j + 1]; e++) sum += value[members[e]];
        total[j] = sum;
    }
}

KERNEL void sum_numbers(int64_t n, const int64_t ptr[n + 1], const int32_t *members,
                        const double *value, double total[n]) {
    for (int64_t j = 0; j < n; j++) {
        double sum = 0;
        for (int64_t e = ptr[j]; e < ptr[j + 1]; e++) sum += value[members[e]];
        total[j] = sum;
    }
}

/* Move each link to a later layer than the link before it on each path; return whether any link
 * moved. */
KERNEL bool raise_layers(const Incidence *incidence, int32_t *layer) {
    const int32_t *links = incidence->links;
    bool rose = false;
    for (int64_t j = 0; j < incidence->n_paths; j++)
        for (int64_t e = incidence->path_ptr[j] + 1; e < incidence->path_ptr[j + 1]; e++)
            if (layer[links[e]] <= layer[links[e - 1]]) {
                layer[links[e]] = layer[links[e - 1]] + 1;
                rose = true;
            }
    return rose;
}
