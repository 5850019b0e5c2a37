/* SPDX-License-Identifier: Apache-2.0 */
/* The loss rates of blamed links (Canary, section III-F), for `analysis.solvers.stages`. */
#include "incidence.h"

/* `_Paths` in Python. */
typedef struct {
    const int64_t *sent;
    const double *success;
    const bool *present;
    int64_t *blamed;
} PathCounts;

/* Return two estimates of the success probability of link i: pooled over the packets of its paths
 * that hold no other blamed link (over all its paths if there is none), and in `all`, pooled over
 * all. The result of coordinate descent cannot serve, because it fits the mapped y'. */
static double success(const Incidence *incidence, const PathCounts *paths, int64_t i,
                      double *all) {
    double alone_sent = 0, alone = 0, all_sent = 0, together = 0;
    for (int64_t e = incidence->link_ptr[i]; e < incidence->link_ptr[i + 1]; e++) {
        int32_t j = incidence->paths[e];
        if (!paths->present[j]) continue;
        double sent = (double)paths->sent[j], passed = sent * paths->success[j];
        all_sent += sent;
        together += passed;
        if (paths->blamed[j] == 1) {
            alone_sent += sent;
            alone += passed;
        }
    }
    *all = together / (1.0 > all_sent ? 1.0 : all_sent);
    return alone_sent > 0 ? alone / alone_sent : *all;
}

/* Write both results of `success` for each link. */
KERNEL void pool(const Incidence *incidence, const PathCounts *paths, int64_t n,
                 const int64_t links[n], double pooled[n][2]) {
    for (int64_t i = 0; i < n; i++)
        pooled[i][0] = success(incidence, paths, links[i], &pooled[i][1]);
}

/* Clear the blame of each link whose own success probability is above `limit`, one link after the
 * other, so that the losses of a path over two of them count against the one that is left. */
KERNEL void acquit(const Incidence *incidence, PathCounts *paths, int64_t n,
                   const int64_t links[n], double limit, bool *blamed) {
    double all;
    for (int64_t i = 0; i < n; i++) {
        int64_t link = links[i];
        if (!(success(incidence, paths, link, &all) > limit)) continue;
        blamed[link] = false;
        for (int64_t e = incidence->link_ptr[link]; e < incidence->link_ptr[link + 1]; e++)
            paths->blamed[incidence->paths[e]]--;
    }
}
