/* SPDX-License-Identifier: Apache-2.0 */
/* The links of bad devices, for `analysis.methods.netbouncer`. */
#include "../solvers/incidence.h"

/* Raise `best` of each wanted link to the highest y of its paths. */
KERNEL void find_best_path(const Incidence *incidence, int64_t n_paths, const double y[n_paths],
                           int64_t n_links, const bool wanted[n_links], double best[n_links]) {
    for (int64_t i = 0; i < n_links; i++) {
        if (!wanted[i]) continue;
        for (int64_t e = incidence->link_ptr[i]; e < incidence->link_ptr[i + 1]; e++) {
            double found = y[incidence->paths[e]];
            if (found > best[i]) best[i] = found;
        }
    }
}
