/* SPDX-License-Identifier: Apache-2.0 */
/* The paths whose losses one blamed unit mainly causes; see black_holes.py. */

/* Write each pair of a path and a blamed unit that causes at least half of its losses: the unit,
 * the path, and the rate of the path's other units, as far as there is `room`. Return how many
 * there are. `last`, all -1, and `over`, for the units of a path, are scratch. */
KERNEL int64_t main_faults(int64_t n_paths, const int64_t ptr[n_paths + 1], int64_t n_entries,
                           const int32_t links[n_entries], int64_t n_links,
                           const int32_t of_link[n_links], int64_t n_units,
                           const bool blamed[n_units], const double x[n_units],
                           int64_t last[n_units], int64_t longest, int32_t over[longest],
                           int64_t room, int32_t units[room], int64_t rows[room],
                           double rests[room]) {
    int64_t found = 0;
    for (int64_t p = 0; p < n_paths; p++) {
        double total = 0.0;
        int64_t n = 0;
        bool any_blamed = false;
        for (int64_t e = ptr[p]; e < ptr[p + 1]; e++) {
            int32_t i = of_link[links[e]];
            if (last[i] != p) {
                last[i] = p;
                over[n++] = i;
                total += x[i];
                any_blamed |= blamed[i];
            }
        }
        for (int64_t nth = 0; any_blamed && nth < n; nth++) {
            int32_t i = over[nth];
            if (blamed[i] && 2 * x[i] >= total) {
                if (found < room) {
                    units[found] = i;
                    rows[found] = p;
                    rests[found] = total - x[i];
                }
                found++;
            }
        }
    }
    return found;
}
