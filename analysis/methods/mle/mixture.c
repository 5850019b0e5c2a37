/* SPDX-License-Identifier: Apache-2.0 */
/* What makes a mixture and sets its rates; see mixture.py. */
#include "mixture.h"

/* Count the paths that each unit is on; path p is over the units from path_ptr[p] on. */
KERNEL void count_paths_over(int64_t n_paths, const int32_t path_ptr[n_paths + 1],
                             int64_t n_entries, const int32_t units[n_entries], int64_t n_units,
                             int64_t count[n_units]) {
    for (int64_t e = 0; e < path_ptr[n_paths]; e++)
        count[units[e]]++;
}

/* Write the paths of each unit i, ascending, to `over` from free_place[i] on. */
KERNEL void write_paths_over(int64_t n_paths, const int32_t path_ptr[n_paths + 1],
                             int64_t n_entries, const int32_t units[n_entries], int64_t n_units,
                             int64_t free_place[n_units], int64_t n_over, int32_t over[n_over]) {
    for (int64_t p = 0; p < n_paths; p++)
        for (int64_t e = path_ptr[p]; e < path_ptr[p + 1]; e++)
            over[free_place[units[e]]++] = (int32_t)p;
}

/* Set the rate of healthy links to `mean`; return the log-likelihood of all observations, without
 * the constant of the number of paths of each set. */
KERNEL double set_mean(double mean, const Mixture *mix) {
    const HiddenFlows *hidden = &mix->hidden;
    double value = 0.0;
    mix->mean[0] = mean;
    for (int64_t i = 0; i < mix->n_units; i++)
        value -= mix->arrived[i] * (mix->x[i] + mean * mix->size[i]);
    for (int64_t r = 0; r < mix->n_rows; r++) {
        mix->total[r] = mean * mix->row_hops[r];
        for (int64_t e = mix->ptr[r]; e < mix->ptr[r + 1]; e++)
            mix->total[r] += mix->x[mix->units[e]];
        value += mix->lost[r] * log_losing(mix->total[r]);
    }
    for (int64_t g = 0; g < hidden->n_sets; g++) {
        sum_set(g, mix);
        for (int64_t f = hidden->flow_ptr[g]; f < hidden->flow_ptr[g + 1]; f++) {
            double sign = hidden->lost[f] < 0.0 ? -1.0 : 1.0;
            value += sign * hidden->times[f] * mix->log_sum[f];
        }
    }
    return value;
}

/* Set the rate of unit i; `current` becomes false for units that this affects. */
KERNEL void change_rate(int64_t i, double new_rate, const Mixture *mix, int64_t n_units,
                        bool current[n_units]) {
    change(i, new_rate, mix, current);
}

/* Write to `gain` the gain in log-likelihood if unit i had each of the `rates`, at most RATES,
 * instead of its own, with all other rates fixed. */
KERNEL void gains(int64_t i, int64_t n_rates, const double rates[n_rates], const Mixture *mix,
                  double gain[n_rates]) {
    gains_at(i, rates, n_rates, mix, gain);
}

/* Set the rate of each hidden path to the sum of its units' rates. */
KERNEL void add_up(const Mixture *mix, int64_t n_paths, double rate[n_paths]) {
    const HiddenFlows *hidden = &mix->hidden;
    for (int64_t p = 0; p < n_paths; p++) {
        rate[p] = 0.0;
        for (int64_t e = hidden->path_ptr[p]; e < hidden->path_ptr[p + 1]; e++)
            rate[p] += mix->x[hidden->units[e]];
    }
}
