/* SPDX-License-Identifier: Apache-2.0 */
/* Greedy explanation of losses (deTector, section 5), for `analysis.methods.detector`. */
#include "../solvers/incidence.h"

/* Add packets to the gain of each suspect on a path. */
static void add_gain(const Incidence *incidence, int64_t path, const bool *suspect,
                     int64_t packets, int64_t *gain) {
    for (int64_t e = incidence->path_ptr[path]; e < incidence->path_ptr[path + 1]; e++)
        if (suspect[incidence->links[e]]) gain[incidence->links[e]] += packets;
}

/* Explain the losses of the open paths by suspects (Tomo): choose the suspect that explains most
 * lost packets, close its paths, and repeat until no suspect explains any. `gain`, zeros, is
 * scratch memory; the packets that a chosen link explains are added to `explained`. */
KERNEL void explain(const Incidence *incidence, int64_t n_paths, const int64_t lost[n_paths],
                    bool open_paths[n_paths], int64_t n_links, const bool suspect[n_links],
                    int64_t gain[n_links], int64_t explained[n_links]) {
    for (int64_t path = 0; path < n_paths; path++)
        if (open_paths[path]) add_gain(incidence, path, suspect, lost[path], gain);
    while (n_links) {
        int64_t best = 0;
        for (int64_t link = 1; link < n_links; link++)
            if (gain[link] > gain[best]) best = link;
        if (gain[best] <= 0) return;
        explained[best] += gain[best];
        for (int64_t e = incidence->link_ptr[best]; e < incidence->link_ptr[best + 1]; e++) {
            int32_t path = incidence->paths[e];
            if (!open_paths[path]) continue;
            open_paths[path] = false;
            add_gain(incidence, path, suspect, -lost[path], gain);
        }
    }
}
