/* SPDX-License-Identifier: Apache-2.0 */
/* What makes groups of path sets: equal sets found by a hash table, and paths over components. */

/* A `PathSets`: set s has the paths from ptr[s] on, path p the links from path_ptr[p] on. */
typedef struct {
    const int64_t *ptr;
    const int64_t *path_ptr;
    const int32_t *links;
} Sets;

/* Write a hash of each path set in one part of the sets. */
KERNEL void hash_sets(int64_t part, int64_t parts, const Sets *sets, int64_t n_sets,
                      uint64_t hashes[n_sets]) {
    for (int64_t s = part_begin(n_sets, part, parts); s < part_end(n_sets, part, parts); s++) {
        uint64_t x = 0xCBF29CE484222325u;
        for (int64_t p = sets->ptr[s]; p < sets->ptr[s + 1]; p++) {
            for (int64_t e = sets->path_ptr[p]; e < sets->path_ptr[p + 1]; e++) {
                x = (x ^ (uint64_t)sets->links[e]) * 0x9E3779B97F4A7C15u;
                x ^= x >> 29;
            }
            x = (x ^ 0xFFFFFFFFu) * 0xBF58476D1CE4E5B9u; /* where a path ends */
        }
        hashes[s] = x ^ (x >> 32);
    }
}

/* Return whether the sets a and b have the same paths in the same order. */
static bool same_paths(const Sets *sets, int64_t a, int64_t b) {
    int64_t n = sets->ptr[a + 1] - sets->ptr[a];
    if (n != sets->ptr[b + 1] - sets->ptr[b])
        return false;
    for (int64_t i = 0; i < n; i++) {
        const int64_t *of_a = sets->path_ptr + sets->ptr[a] + i;
        const int64_t *of_b = sets->path_ptr + sets->ptr[b] + i;
        int64_t length = of_a[1] - of_a[0];
        if (length != of_b[1] - of_b[0])
            return false;
        for (int64_t j = 0; j < length; j++)
            if (sets->links[of_a[0] + j] != sets->links[of_b[0] + j])
                return false;
    }
    return true;
}

/* Write the group of each set, and the first set of each group; equal sets are one group. `slots`,
 * all -1 and a power of two of them, becomes a hash table of groups. Return their number. */
KERNEL int64_t group_equal(const Sets *sets, int64_t n_sets, int64_t n_slots,
                           const uint64_t hashes[n_sets], int32_t slots[n_slots],
                           int32_t group[n_sets], int32_t first[n_sets]) {
    int32_t n_groups = 0;
    for (int64_t s = 0; s < n_sets; s++) {
        int64_t at = (int64_t)(hashes[s] & (uint64_t)(n_slots - 1));
        while (slots[at] >= 0) {
            int64_t other = first[slots[at]];
            if (hashes[other] == hashes[s] && same_paths(sets, other, s))
                break;
            at = (at + 1) & (n_slots - 1);
        }
        if (slots[at] < 0) {
            slots[at] = n_groups;
            first[n_groups++] = (int32_t)s;
        }
        group[s] = slots[at];
    }
    return n_groups;
}

/* The numbering of links and switches as components; see `Components` in listed.py. */
typedef struct {
    const int32_t *link_src;
    const int32_t *link_dst;
    int64_t shift;
    int64_t n_links;
} Components;

/* Write the components of each path in one part of the paths, each once, one path after another, to
 * `out`, and how many each path has to `count`. Return how many were written. */
KERNEL int64_t path_components(int64_t part, int64_t parts, int64_t n_paths, int64_t n_entries,
                               const int64_t ptr[n_paths + 1], const int32_t links[n_entries],
                               const Components *components, int64_t count[n_paths], int64_t room,
                               int32_t out[room]) {
    int64_t at = 0;
    for (int64_t p = part_begin(n_paths, part, parts); p < part_end(n_paths, part, parts); p++) {
        int32_t *path = out + at;
        int64_t n = 0;
        for (int64_t e = ptr[p]; e < ptr[p + 1]; e++) {
            int32_t link = links[e];
            const int32_t met[3] = {
                link >> components->shift,
                (int32_t)components->n_links + components->link_src[link],
                (int32_t)components->n_links + components->link_dst[link],
            };
            for (int nth = 0; nth < 3; nth++) {
                int64_t i = 0;
                while (i < n && path[i] != met[nth])
                    i++;
                if (i == n)
                    path[n++] = met[nth];
            }
        }
        count[p] = n;
        at += n;
    }
    return at;
}

/* Count the groups (or lists) in which each component occurs. Group g has the paths from outer[g]
 * on, and path p the components from inner[p] on. `last`, all -1, is scratch. */
KERNEL void count_occurrences(int64_t n_groups, int64_t n_paths, int64_t n_entries,
                              int64_t n_components, const int64_t outer[n_groups + 1],
                              const int64_t inner[n_paths + 1], const int32_t components[n_entries],
                              int32_t last[n_components], int64_t count[n_components]) {
    for (int64_t g = 0; g < n_groups; g++) {
        for (int64_t e = inner[outer[g]]; e < inner[outer[g + 1]]; e++) {
            int32_t c = components[e];
            if (last[c] != g) {
                last[c] = (int32_t)g;
                count[c]++;
            }
        }
    }
}

/* Write these groups of each component c to `groups` from free_place[c] on. */
KERNEL void write_occurrences(int64_t n_groups, int64_t n_paths, int64_t n_entries,
                              int64_t n_components, int64_t n_found,
                              const int64_t outer[n_groups + 1], const int64_t inner[n_paths + 1],
                              const int32_t components[n_entries], int32_t last[n_components],
                              int64_t free_place[n_components], int32_t groups[n_found]) {
    for (int64_t g = 0; g < n_groups; g++) {
        for (int64_t e = inner[outer[g]]; e < inner[outer[g + 1]]; e++) {
            int32_t c = components[e];
            if (last[c] != g) {
                last[c] = (int32_t)g;
                groups[free_place[c]++] = (int32_t)g;
            }
        }
    }
}
