/* SPDX-License-Identifier: Apache-2.0 */
/* The likelihood of known and hidden paths together, along one unit's rate, and its updates; see
 * mixture.py. A flow of a packets that arrived and k that were lost, on one of w paths, adds
 *
 *     ln((1/w) sum_p e^(-a X_p) (1 - e^(-X_p))^k). */
#include "hidden.h"

static const double NOTHING = 30.0; /* nats; a term that is so much smaller changes no sum */
static const double MOST = 30.0;    /* packets times rate up to which a rate is one factor */
static const double CLEAN = 1e-12;  /* rates below are 0 up to rounding */

enum {
    RATES = 12, /* the most rates that `gains_at` accepts in one call */
    SIZES = 64, /* how many sizes of loss-free flows are distinguished */
    SHARES = 4, /* how many shares of their paths over a unit */
};

/* Loss-free flows of one size and one share of their paths over a unit. */
typedef struct {
    double flows;
    double share;
    double arrived;
} Alike;

/* See `Mixture` in mixture.py. */
typedef struct {
    int64_t n_units;
    int64_t n_rows;
    const int64_t *ptr;      /* rows as in `Problem` */
    const int32_t *units;
    const int64_t *unit_ptr;
    const int32_t *rows;
    const double *lost;
    const double *arrived;
    const double *size;
    const double *row_hops;  /* [n_rows]: links of each row */
    double *total;           /* [n_rows]: rates of the rows */
    HiddenFlows hidden;
    const int64_t *over_ptr; /* [n_units + 1]: unit i is on the paths from over_ptr[i] on */
    const int32_t *over;
    const int32_t *set_of;   /* [n_paths] */
    double *rate;            /* [n_paths]: rates of the blamed units of each path */
    double *log_sum;         /* [n_flows]: the logarithm of each flow's sum over paths */
    double *x;               /* [n_units]: the rate of a blamed unit, else 0 */
    double *mean;            /* [1]: the rate of a healthy link */
    const int32_t *size_of;  /* [n_flows]: numbers loss-free flows by size; -1: another flow */
    bool *on;                /* [n_paths]: scratch */
    int64_t room_width;
    double *room;            /* [3 + RATES][room_width]: scratch */
    double *alike;           /* [SIZES * SHARES][3]: scratch, see `Alike` */
} Mixture;

static inline double larger(double a, double b) {
    return b > a ? b : a;
}

static inline double smaller(double a, double b) {
    return b < a ? b : a;
}

static inline double log_losing(double rate) {
    return log(-expm1(-larger(rate, 1e-300)));
}

/* Return the logarithm of a path's term, given the logarithm of 1 - e^-rate. */
static inline double term_of(double arrived, double lost, double rate, double losing) {
    if (lost < 0.0)
        return log(-expm1(-arrived * rate));
    return lost * losing - arrived * rate;
}

static double *room_of(const Mixture *mix, int64_t row) {
    return mix->room + row * mix->room_width;
}

/* Update the sums over paths of a set's flows. The first two rows of `room` are scratch. */
static void sum_set(int64_t g, const Mixture *mix) {
    const HiddenFlows *hidden = &mix->hidden;
    int64_t first = hidden->set_ptr[g], n = hidden->set_ptr[g + 1] - first;
    double *rates = room_of(mix, 0), *logs = room_of(mix, 1);
    double base = mix->mean[0] * hidden->hops[g];
    for (int64_t p = 0; p < n; p++) {
        rates[p] = base + larger(mix->rate[first + p], 0.0);
        logs[p] = log_losing(rates[p]);
    }
    for (int64_t f = hidden->flow_ptr[g]; f < hidden->flow_ptr[g + 1]; f++) {
        double arrived = hidden->arrived[f], lost = hidden->lost[f], highest = -1e300, whole = 0.0;
        for (int64_t p = 0; p < n; p++)
            highest = larger(highest, term_of(arrived, lost, rates[p], logs[p]));
        for (int64_t p = 0; p < n; p++) {
            double at = term_of(arrived, lost, rates[p], logs[p]) - highest;
            if (at > -40.0)
                whole += (double)hidden->many[first + p] * exp(at);
        }
        mix->log_sum[f] = highest + log(whole);
    }
}

/* Set the rate of unit i; `current` becomes false for units that this affects. */
static void change(int64_t i, double new, const Mixture *mix, bool *current) {
    const HiddenFlows *hidden = &mix->hidden;
    double by = new - mix->x[i];
    mix->x[i] = new;
    for (int64_t e = mix->unit_ptr[i]; e < mix->unit_ptr[i + 1]; e++) {
        int64_t r = mix->rows[e];
        mix->total[r] = larger(mix->total[r] + by, 1e-300);
        for (int64_t u = mix->ptr[r]; u < mix->ptr[r + 1]; u++)
            current[mix->units[u]] = false;
    }
    for (int64_t e = mix->over_ptr[i]; e < mix->over_ptr[i + 1]; e++)
        mix->rate[mix->over[e]] += by;
    int64_t last = -1;
    for (int64_t e = mix->over_ptr[i]; e < mix->over_ptr[i + 1]; e++) {
        int64_t g = mix->set_of[mix->over[e]];
        if (g == last)
            continue;
        last = g;
        sum_set(g, mix);
        int64_t first = hidden->path_ptr[hidden->set_ptr[g]];
        int64_t end = hidden->path_ptr[hidden->set_ptr[g + 1]];
        for (int64_t u = first; u < end; u++)
            current[hidden->units[u]] = false;
    }
    current[i] = false;
}

/* Group the paths over unit i of one set, from entry `begin` of `over` on, by their rate without
 * unit i: write these rates to the first row of `room` and the numbers of paths to the second, and
 * the number of groups to `n_groups`. Return where the next set begins. */
static int64_t group_by_rest(int64_t begin, int64_t i, const Mixture *mix, int64_t *n_groups) {
    double *rest = room_of(mix, 0), *many = room_of(mix, 1);
    int64_t g = mix->set_of[mix->over[begin]], n = 0, e = begin;
    for (; e < mix->over_ptr[i + 1] && mix->set_of[mix->over[e]] == g; e++) {
        int64_t p = mix->over[e], c = 0;
        double other = mix->rate[p] - mix->x[i];
        if (other < CLEAN)
            other = 0.0;
        while (c < n && !(fabs(rest[c] - other) <= 1e-6 * other))
            c++;
        if (c < n) {
            many[c] += (double)mix->hidden.many[p];
        } else {
            rest[n] = other;
            many[n++] = (double)mix->hidden.many[p];
        }
    }
    *n_groups = n;
    return e;
}

/* Return the logarithm of the share of flow f's sum that is on paths of set g other than those of
 * the entries `begin` to `end` - 1 of `over`. */
static double log_left(int64_t g, int64_t f, int64_t begin, int64_t end, const Mixture *mix) {
    const HiddenFlows *hidden = &mix->hidden;
    double base = mix->mean[0] * hidden->hops[g], highest = -1e300, whole = 0.0;
    for (int64_t e = begin; e < end; e++)
        mix->on[mix->over[e]] = true;
    for (int64_t p = hidden->set_ptr[g]; p < hidden->set_ptr[g + 1]; p++) {
        if (mix->on[p])
            continue;
        double rate = base + larger(mix->rate[p], 0.0);
        double term = term_of(hidden->arrived[f], hidden->lost[f], rate, log_losing(rate))
                      - mix->log_sum[f];
        if (term > highest) {
            whole *= exp(highest - term);
            highest = term;
        }
        whole += (double)hidden->many[p] * exp(term - highest);
    }
    for (int64_t e = begin; e < end; e++)
        mix->on[mix->over[e]] = false;
    return whole > 0.0 ? highest + log(whole) : highest;
}

/* Add flow f's gain at each rate to `gain`; `bottom` is the logarithm of its share on other paths,
 * and `gains_at` has filled `room` for n groups of paths. */
static void add_flow_gains(int64_t f, double bottom, int64_t n, int64_t n_rates,
                           const double *rates, double base, const Mixture *mix, double *gain) {
    const HiddenFlows *hidden = &mix->hidden;
    const double *rest = room_of(mix, 0), *many = room_of(mix, 1);
    double arrived = hidden->arrived[f], lost = hidden->lost[f], times = hidden->times[f];
    double sign = lost < 0.0 ? -times : times, *terms = room_of(mix, 2 + RATES);
    for (int64_t j = 0; j < n_rates; j++) {
        const double *losing = room_of(mix, 2 + j);
        double highest = bottom;
        for (int64_t c = 0; c < n; c++) {
            double rate = base + rest[c] + rates[j];
            terms[c] = term_of(arrived, lost, rate, losing[c]) - mix->log_sum[f];
            highest = larger(highest, terms[c]);
        }
        double whole = exp(bottom - highest);
        for (int64_t c = 0; c < n; c++)
            if (terms[c] - highest > -40.0)
                whole += many[c] * exp(terms[c] - highest);
        gain[j] += sign * (highest + log(whole));
    }
}

/* Count loss-free flow f with those of equal size and equal share `mine` on paths over a unit;
 * return false if no place is free for it. */
static bool put_off(int64_t f, double mine, const Mixture *mix) {
    if (mix->size_of[f] < 0)
        return false;
    Alike *alike = (Alike *)mix->alike + SHARES * mix->size_of[f];
    for (int at = 0; at < SHARES; at++) {
        if (alike[at].flows == 0.0 || fabs(alike[at].share - mine) <= 1e-9) {
            alike[at].flows += mix->hidden.times[f];
            alike[at].share = mine;
            alike[at].arrived = mix->hidden.arrived[f];
            return true;
        }
    }
    return false;
}

/* Add the gain of loss-free flows of which the share `mine` is on paths over a unit of rate x; all
 * their terms change by one factor, whatever the number of paths. */
static void add_free_gains(double flows, double mine, double arrived, double x,
                           const double *rates, int64_t n_rates, double *gain) {
    if (mine < 1e-14)
        return;
    double other = log1p(-mine);
    for (int64_t j = 0; j < n_rates; j++) {
        double change = arrived * (x - rates[j]);
        if (change < -NOTHING && mine < 0.5)
            gain[j] += flows * other;
        else
            gain[j] += flows * log1p(mine * expm1(change));
    }
}

/* Write to `gain` the gain in log-likelihood if unit i had each of the first `n_rates` rates
 * instead of its own, with all other rates fixed. */
static void gains_at(int64_t i, const double *rates, int64_t n_rates, const Mixture *mix,
                     double *gain) {
    const HiddenFlows *hidden = &mix->hidden;
    const double *rest = room_of(mix, 0), *many = room_of(mix, 1);
    double x = mix->x[i];
    for (int64_t j = 0; j < n_rates; j++) {
        double by = rates[j] - x;
        gain[j] = 0.0 - mix->arrived[i] * by;
        for (int64_t e = mix->unit_ptr[i]; e < mix->unit_ptr[i + 1]; e++) {
            int64_t r = mix->rows[e];
            double now = mix->total[r];
            double ratio = expm1(-larger(now + by, 1e-300)) / expm1(-now);
            gain[j] += mix->lost[r] * log(ratio);
        }
    }
    Alike *alike = (Alike *)mix->alike;
    for (int at = 0; at < SIZES * SHARES; at++)
        alike[at].flows = 0.0;
    for (int64_t e = mix->over_ptr[i]; e < mix->over_ptr[i + 1];) {
        int64_t g = mix->set_of[mix->over[e]], begin = e, n;
        double base = mix->mean[0] * hidden->hops[g];
        e = group_by_rest(begin, i, mix, &n);
        bool ready = false;
        for (int64_t f = hidden->flow_ptr[g]; f < hidden->flow_ptr[g + 1]; f++) {
            double arrived = hidden->arrived[f], lost = hidden->lost[f], mine = 0.0;
            for (int64_t c = 0; c < n; c++) {
                double rate = base + rest[c] + x;
                double losing = lost > 0.0 ? log_losing(rate) : 0.0;
                double term = term_of(arrived, lost, rate, losing) - mix->log_sum[f];
                mine += many[c] * exp(smaller(term, 0.0));
            }
            if (lost == 0.0 && mine < 1.0 - 1e-6 && arrived * x < MOST) {
                if (!put_off(f, mine, mix))
                    add_free_gains(hidden->times[f], mine, arrived, x, rates, n_rates, gain);
                continue;
            }
            if (!ready && lost > 0.0) {
                ready = true;
                for (int64_t c = 0; c < n; c++)
                    for (int64_t j = 0; j < n_rates; j++)
                        room_of(mix, 2 + j)[c] = log_losing(base + rest[c] + rates[j]);
            }
            double bottom = mine < 1.0 - 1e-6 ? log1p(-mine) : log_left(g, f, begin, e, mix);
            add_flow_gains(f, bottom, n, n_rates, rates, base, mix, gain);
        }
    }
    for (int at = 0; at < SIZES * SHARES; at++)
        if (alike[at].flows > 0.0)
            add_free_gains(alike[at].flows, alike[at].share, alike[at].arrived, x, rates, n_rates,
                           gain);
}
