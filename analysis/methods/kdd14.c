/* SPDX-License-Identifier: Apache-2.0 */
/* The culprit of each path's losses, for `analysis.methods.kdd14`. */
#include "../solvers/incidence.h"

/* Write the likeliest suspect of each lossy path to `culprit`; return whether any changed. */
KERNEL bool name_culprits(const Incidence *incidence, int64_t n_suspects,
                          const double failure[n_suspects], const int64_t across[n_suspects],
                          int64_t n_paths, const int64_t lost[n_paths],
                          int64_t culprit[n_paths]) {
    const int32_t *suspects = incidence->links;
    bool changed = false;
    for (int64_t path = 0; path < n_paths; path++) {
        int64_t begin = incidence->path_ptr[path], end = incidence->path_ptr[path + 1];
        if (lost[path] == 0 || begin == end) continue;
        int32_t best = suspects[begin];
        for (int64_t e = begin + 1; e < end; e++) {
            int32_t one = suspects[e];
            bool equal = failure[one] == failure[best];
            if (failure[one] > failure[best] || (equal && across[one] > across[best])) best = one;
        }
        changed |= culprit[path] != best;
        culprit[path] = best;
    }
    return changed;
}
