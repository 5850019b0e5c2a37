/* SPDX-License-Identifier: Apache-2.0 */
/* Reports that exist only because of a loss, with their traces: what flows that were not reported
 * carried, given the rates; see traced.py. */
#include "hidden.h"

/* The rates of blamed units on the paths of each set; see `PathRates` in traced.py. Set g has its
 * n[g] distinct rates from set_ptr[g] on. */
typedef struct {
    HiddenFlows hidden;
    int64_t *n;     /* [n_sets] */
    double *rate;   /* [n_paths]: the distinct rates */
    double *many;   /* [n_paths]: how many paths have each, as far as they are traced */
    int64_t *kind;  /* [n_paths]: which of them each path has */
    double *traced; /* [n_paths]: how many alike paths it stands for, times its trace's chance */
} PathRates;

/* Return minus the logarithm of the probability that the trace of a path of n units is complete: it
 * takes an answer of the switch where it turns, and of one of the last two (007, section 4.2). */
static double dies(const int32_t *path, int64_t n, const int32_t *back, const double *silence,
                   const double *x) {
    double there_and_back = 0.0, turned = 0.0, near = 0.0;
    for (int64_t e = 0; e < n; e++) {
        int32_t i = path[e];
        there_and_back += x[i] + (back[i] >= 0 ? x[back[i]] : 0.0);
        if (2 * e < n)
            turned = there_and_back + silence[i];
        if (e < n - 1)
            near = there_and_back;
    }
    if (n <= 2)
        return turned;
    return turned + near - log1p(exp(near - there_and_back) - exp(-there_and_back));
}

/* Add `weight` to the units that a path, or the way back of its trace, crosses. */
static void cross(const int32_t *path, int64_t n, const int32_t *back, double weight,
                  double *crossed) {
    for (int64_t e = 0; e < n; e++) {
        crossed[path[e]] += weight;
        if (2 * e < n && back[path[e]] >= 0)
            crossed[back[path[e]]] += weight;
    }
}

/* Add to `crossed` the reports of all rows that crossed each unit. */
KERNEL void cross_all(int64_t n_rows, const int64_t ptr[n_rows + 1], int64_t n_entries,
                      const int32_t units[n_entries], const double times[n_rows], int64_t n_units,
                      const int32_t back[n_units], double crossed[n_units]) {
    for (int64_t r = 0; r < n_rows; r++)
        cross(units + ptr[r], ptr[r + 1] - ptr[r], back, times[r], crossed);
}

/* Return minus the log-likelihood in nats that the traces of all reports are complete. */
KERNEL double missing(int64_t n_rows, const int64_t ptr[n_rows + 1], int64_t n_entries,
                      const int32_t units[n_entries], const double times[n_rows], int64_t n_units,
                      const int32_t back[n_units], const double silence[n_units],
                      const double x[n_units]) {
    double total = 0.0;
    for (int64_t r = 0; r < n_rows; r++)
        total += times[r] * dies(units + ptr[r], ptr[r + 1] - ptr[r], back, silence, x);
    return total;
}

/* Find the distinct rates of the paths of each set, given the rates x of blamed units. */
KERNEL void path_rates(const PathRates *paths, int64_t n_units, const int32_t back[n_units],
                       const double silence[n_units], const double x[n_units]) {
    const HiddenFlows *hidden = &paths->hidden;
    for (int64_t g = 0; g < hidden->n_sets; g++) {
        int64_t first = hidden->set_ptr[g], last = first;
        for (int64_t p = first; p < hidden->set_ptr[g + 1]; p++) {
            const int32_t *path = hidden->units + hidden->path_ptr[p];
            int64_t length = hidden->path_ptr[p + 1] - hidden->path_ptr[p], k = first;
            double sum = 0.0;
            for (int64_t e = 0; e < length; e++)
                sum += x[path[e]];
            paths->traced[p] = (double)hidden->many[p] * exp(-dies(path, length, back, silence, x));
            while (k < last && paths->rate[k] != sum)
                k++;
            if (k == last) {
                paths->rate[k] = sum;
                paths->many[k] = 0.0;
                last++;
            }
            paths->many[k] += paths->traced[p];
            paths->kind[p] = k - first;
        }
        paths->n[g] = last - first;
    }
}

/* Return the sum of the logarithms of the chances that flows are reported, less that of the numbers
 * of paths, given the mean rate of all units that are not blamed. */
KERNEL double divisors(const PathRates *paths, double mean) {
    const HiddenFlows *hidden = &paths->hidden;
    double total = 0.0;
    for (int64_t g = 0; g < hidden->n_sets; g++) {
        int64_t first = hidden->set_ptr[g];
        double base = mean * hidden->hops[g];
        for (int64_t f = hidden->flow_ptr[g]; f < hidden->flow_ptr[g + 1]; f++) {
            double whole = 0.0;
            for (int64_t k = first; k < first + paths->n[g]; k++)
                whole += paths->many[k] * -expm1(-hidden->arrived[f] * (base + paths->rate[k]));
            total += hidden->times[f] * log(whole);
        }
    }
    return total;
}

/* Add the packets of unreported flows that arrived over each unit, the expected number of reports
 * whose paths turn behind it, and that of reports whose paths or traces crossed it. A report of a
 * flow of its size stands for (1 - P) / P flows that were not made, P the chance of a report; see
 * traced.py. `over` and `reported` are scratch, of the rates of a set. */
KERNEL void unreported(const PathRates *paths, int64_t n_units, const int32_t back[n_units],
                       double mean, int64_t widest, double over[widest], double reported[widest],
                       double arrived[n_units], double turned[n_units], double crossed[n_units]) {
    const HiddenFlows *hidden = &paths->hidden;
    for (int64_t g = 0; g < hidden->n_sets; g++) {
        int64_t first = hidden->set_ptr[g], n = paths->n[g];
        const double *rate = paths->rate + first, *many = paths->many + first;
        double base = mean * hidden->hops[g];
        for (int64_t k = 0; k < n; k++)
            over[k] = reported[k] = 0.0;
        for (int64_t f = hidden->flow_ptr[g]; f < hidden->flow_ptr[g + 1]; f++) {
            double size = hidden->arrived[f], whole = 0.0;
            for (int64_t k = 0; k < n; k++)
                whole += many[k] * -expm1(-size * (base + rate[k]));
            double each = hidden->times[f] / whole;
            for (int64_t k = 0; k < n; k++) {
                double none = exp(-size * (base + rate[k]));
                over[k] += each * size * none;
                reported[k] += each * (1.0 - none);
            }
        }
        for (int64_t p = first; p < hidden->set_ptr[g + 1]; p++) {
            const int32_t *path = hidden->units + hidden->path_ptr[p];
            int64_t length = hidden->path_ptr[p + 1] - hidden->path_ptr[p], kind = paths->kind[p];
            for (int64_t e = 0; e < length; e++)
                arrived[path[e]] += paths->traced[p] * over[kind];
            double reports = paths->traced[p] * reported[kind];
            turned[path[(length + 1) / 2 - 1]] += reports;
            cross(path, length, back, reports, crossed);
        }
    }
}
