/* SPDX-License-Identifier: Apache-2.0 */
/* Observations over known paths, added up over units; see problem.py. Path p has the links from
 * ptr[p] on; of_link is the unit of each link. */

/* Add a number of its own for each path to the marks of its links; `first` is that of path 0. */
KERNEL void mark_paths(int64_t n_paths, const int64_t ptr[n_paths + 1], int64_t n_entries,
                       const int32_t links[n_entries], int64_t first, int64_t n_links,
                       uint64_t marks[n_links]) {
    for (int64_t p = 0; p < n_paths; p++) {
        uint64_t of_path = scramble((uint64_t)(first + p));
        for (int64_t e = ptr[p]; e < ptr[p + 1]; e++)
            marks[links[e]] += of_path;
    }
}

/* Add the packets that arrived to each unit, and write a key for each path that is equal for paths
 * over the same units: the sum of their secrets. `last`, all -1, is scratch. */
KERNEL void add_up(int64_t n_paths, const int64_t ptr[n_paths + 1], int64_t n_entries,
                   const int32_t links[n_entries], int64_t n_links, const int32_t of_link[n_links],
                   const double sent[n_paths], const double lost[n_paths], int64_t n_units,
                   const uint64_t secret[n_units], int64_t last[n_units], double arrived[n_units],
                   uint64_t key[n_paths]) {
    for (int64_t p = 0; p < n_paths; p++) {
        key[p] = 0;
        for (int64_t e = ptr[p]; e < ptr[p + 1]; e++) {
            int64_t i = of_link[links[e]];
            if (last[i] != p) {
                last[i] = p;
                arrived[i] += sent[p] - lost[p];
                key[p] += secret[i];
            }
        }
    }
}

/* Write the units of each path, each once: path p has those from unit_ptr[p] on. Count the paths
 * that each unit is on. `last`, all -1, is scratch. Return how many units were written. */
KERNEL int64_t units_of_paths(int64_t n_paths, const int64_t ptr[n_paths + 1], int64_t n_entries,
                              const int32_t links[n_entries], int64_t n_links,
                              const int32_t of_link[n_links], int64_t n_units,
                              int64_t last[n_units], int64_t unit_ptr[n_paths + 1],
                              int32_t units[n_entries], int64_t count[n_units]) {
    int64_t end = 0;
    unit_ptr[0] = 0;
    for (int64_t p = 0; p < n_paths; p++) {
        for (int64_t e = ptr[p]; e < ptr[p + 1]; e++) {
            int64_t i = of_link[links[e]];
            if (last[i] != p) {
                last[i] = p;
                units[end++] = (int32_t)i;
                count[i]++;
            }
        }
        unit_ptr[p + 1] = end;
    }
    return end;
}

/* Write the paths that each unit i is on from free_place[i] on. */
KERNEL void paths_of_units(int64_t n_paths, const int64_t ptr[n_paths + 1], int64_t n_entries,
                           const int32_t units[n_entries], int64_t n_units,
                           int64_t free_place[n_units], int32_t paths[n_entries]) {
    for (int64_t p = 0; p < n_paths; p++)
        for (int64_t e = ptr[p]; e < ptr[p + 1]; e++)
            paths[free_place[units[e]]++] = (int32_t)p;
}
