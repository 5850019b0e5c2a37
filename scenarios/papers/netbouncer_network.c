/* SPDX-License-Identifier: Apache-2.0 */
/* The upward paths of NetBouncer's probing plan (its sections 3.2 and 4), for
 * `scenarios.papers.netbouncer_network`. */

/* The uplinks of every switch: uplink u of switch s, ptr[s] <= u < ptr[s + 1], is undirected link
 * up[u] and leads to switch upper[u]. */
typedef struct {
    int64_t n_switches;
    int64_t n_origins;
    const int64_t *ptr;
    const int32_t *up;
    const int32_t *upper;
} Uplinks;

/* Count the upward paths of at least one link from each switch, and the links of all of them, into
 * zeros. `order` lists the switches from the top down. */
KERNEL void count_ways(const Uplinks *uplinks, int64_t n, const int64_t order[n], bool every_hop,
                       int64_t ways[n], int64_t steps[n]) {
    const int64_t *ptr = uplinks->ptr;
    for (int64_t i = 0; i < n; i++) {
        int64_t s = order[i];
        for (int64_t u = ptr[s]; u < ptr[s + 1]; u++) {
            int32_t above = uplinks->upper[u];
            int64_t bounces = every_hop || ptr[above] == ptr[above + 1];
            ways[s] += ways[above] + bounces;
            steps[s] += steps[above] + ways[above] + bounces;
        }
    }
}

/* Write the upward paths of this part's origins, depth first, from path first[origin] and entry
 * entry[origin] on. `taken` is scratch memory: the uplink taken at each height. */
KERNEL void climb(int64_t part, int64_t parts, const Uplinks *uplinks, bool every_hop,
                  const int64_t *first, const int64_t *entry, int64_t *taken, int32_t *bounce,
                  int64_t *path_ptr, int32_t *links) {
    const int64_t *ptr = uplinks->ptr;
    const int32_t *upper = uplinks->upper;
    int64_t end = part_end(uplinks->n_origins, part, parts);
    for (int64_t origin = part_begin(uplinks->n_origins, part, parts); origin < end; origin++) {
        int64_t path = first[origin], at = entry[origin], height = 0;
        if (ptr[origin] == ptr[origin + 1]) continue;
        taken[0] = ptr[origin];
        while (height >= 0) {
            int32_t above = upper[taken[height]];
            bool top = ptr[above] == ptr[above + 1];
            if (every_hop || top) {
                bounce[path] = above;
                for (int64_t h = 0; h <= height; h++) {
                    int32_t link = 2 * uplinks->up[taken[h]];
                    links[at + h] = link;
                    links[at + 2 * height + 1 - h] = link + 1;
                }
                at += 2 * height + 2;
                path_ptr[++path] = at;
            }
            if (!top) {
                taken[++height] = ptr[above];
                continue;
            }
            for (; height >= 0; height--) { /* the next uplink, here or at a switch below */
                int64_t below = height == 0 ? origin : upper[taken[height - 1]];
                if (++taken[height] < ptr[below + 1]) break;
            }
        }
    }
}
