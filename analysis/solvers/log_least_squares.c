/* SPDX-License-Identifier: Apache-2.0 */
/* Coordinate descent on logarithms (NetBouncer, section 5.2), for
 * `analysis.solvers.log_least_squares`. */
#include "incidence.h"

/* `_Fit` in Python. */
typedef struct {
    double *residual;
    const double *times;
    double *b;
    double omega;
} Fit;

/* Return the weighted sum of squared residuals of the paths of a part. */
KERNEL double squares(int64_t part, int64_t parts, const Incidence *incidence, const Fit *fit) {
    int64_t n = incidence->n_paths, end = part_end(n, part, parts);
    double total = 0;
    for (int64_t j = part_begin(n, part, parts); j < end; j++)
        total += fit->times[j] * (fit->residual[j] * fit->residual[j]);
    return total;
}

/* Move each link of this part of `order` to its minimum and update the residuals. */
KERNEL void step(int64_t part, int64_t parts, int64_t n, const int32_t order[n],
                 const Incidence *incidence, Fit *fit) {
    int64_t end = part_end(n, part, parts);
    for (int64_t o = part_begin(n, part, parts); o < end; o++) {
        int32_t i = order[o];
        int64_t first = incidence->link_ptr[i], last = incidence->link_ptr[i + 1];
        double total = 0, count = 0;
        for (int64_t e = first; e < last; e++) {
            int32_t j = incidence->paths[e];
            total += fit->times[j] * fit->residual[j];
            count += fit->times[j];
        }
        if (count == 0) continue;
        double aim = fit->b[i] + (total + 0.5 * fit->omega) / count;
        double move = (0.0 < aim ? 0.0 : aim) - fit->b[i];
        if (move == 0) continue;
        fit->b[i] += move;
        for (int64_t e = first; e < last; e++) fit->residual[incidence->paths[e]] -= move;
    }
}
