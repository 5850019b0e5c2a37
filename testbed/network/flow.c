/* SPDX-License-Identifier: Apache-2.0 */
/* Random losses on paths, for `testbed.network.flow`. */

/* Send sent[i] packets along path[i] in epoch[i]. On each link a binomial share is lost, and what
 * is lost does not reach the next link. Write the packets that each row lost, and add those that
 * began to cross each link and those that it lost. */
KERNEL void send_packets(const Random *rng, int64_t n_epochs, int64_t n_links,
                         const double loss[n_epochs][n_links], const int64_t *ptr,
                         const int32_t *links, int64_t n_rows, const int32_t path[n_rows],
                         const int32_t epoch[n_rows], const int64_t sent[n_rows],
                         int64_t lost[n_rows], int64_t packets[n_links], int64_t drops[n_links]) {
    Binomial prepared = {0};
    for (int64_t i = 0; i < n_rows; i++) {
        int64_t left = sent[i];
        for (int64_t e = ptr[path[i]]; e < ptr[path[i] + 1]; e++) {
            int32_t link = links[e];
            packets[link] += left;
            double rate = loss[epoch[i]][link];
            if (rate > 0 && left > 0) {
                int64_t gone = rate >= 1 ? left : binomial(rng, left, rate, &prepared);
                drops[link] += gone;
                left -= gone;
            }
        }
        lost[i] = sent[i] - left;
    }
}
