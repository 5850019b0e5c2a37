/* SPDX-License-Identifier: Apache-2.0 */
/* The search for the links to blame if flows that lost packets may have taken several paths; see
 * mixture_search.py. */
#include "mixture.h"

static const double DEAD = 60.0;   /* the rate that stands for total loss */
static const double LENIENT = 2.0; /* nats by which a rate below that of a fault may be likelier */
static const double BETTER = 0.1;  /* nats by which blamed units must be better; less is rounding */

enum { RIVALS = 8 }; /* the number of units that are tried in place of a blamed one */

/* The state of the search; see `_Search` in mixture_search.py. */
typedef struct {
    const bool *candidate;
    double fault;
    double penalty;
    double *expected_gain; /* [n_units]: what blaming each unit would gain in nats */
    double *at;            /* [n_units]: its rate then */
    bool *current;         /* [n_units]: whether these are up to date */
    double *share;         /* [n_units]: scratch, as are all that follow */
    double *shared;        /* [n_units] */
    double *rates;         /* [RATES] */
    double *gain;          /* [RATES] */
    double *kept;          /* [n_units] */
    double *before;        /* [2][n_units] */
    bool *known;           /* [n_units] */
} Search;

/* The classes that known paths blame; see `Start` in mixture.py. */
typedef struct {
    int64_t n_classes;
    const int64_t *ptr;
    const int32_t *units;
    const double *rate;
} Start;

/* A rate and its gain in nats. */
typedef struct {
    double rate;
    double gain;
} Peak;

/* Return x to the power n >= 0, by multiplication alone, so that it is the same on every
 * machine. */
static double to_power(double x, int64_t n) {
    double power = 1.0;
    for (; n; n >>= 1) {
        if (n & 1)
            power *= x;
        x *= x;
    }
    return power;
}

/* Set the rate of unit i; return the gain in log-likelihood. */
static double put(int64_t i, double new, const Mixture *mix, const Search *state) {
    state->rates[0] = new;
    gains_at(i, state->rates, 1, mix, state->gain);
    double gained = state->gain[0];
    change(i, new, mix, state->current);
    return gained;
}

/* Give the rate of each class to the one unit that makes the observations most likely, with the
 * other classes fixed. Return whether anything changed. */
KERNEL bool choose(const Start *start, const Mixture *mix, const Search *state) {
    bool changed = false;
    for (int64_t c = 0; c < start->n_classes; c++) {
        int64_t begin = start->ptr[c], end = start->ptr[c + 1], now = -1, pick = begin;
        if (end - begin < 2)
            continue;
        double rate = larger(start->rate[c], state->fault), highest = -1e300;
        for (int64_t e = begin; e < end; e++)
            if (mix->x[start->units[e]] == rate)
                now = e;
        for (int64_t e = begin; e < end; e++)
            put(start->units[e], 0.0, mix, state);
        for (int64_t e = begin; e < end; e++) {
            double gained = put(start->units[e], rate, mix, state);
            if (gained > highest) {
                pick = e;
                highest = gained;
            }
            put(start->units[e], 0.0, mix, state);
        }
        change(start->units[pick], rate, mix, state->current);
        changed = changed || pick != now;
    }
    return changed;
}

/* Return the best rate of unit i in a range, with all other rates fixed, and its gain, by a search
 * on a grid that is refined `rounds` times. */
static Peak peak(int64_t i, double low, double high, int rounds, const Mixture *mix,
                 const Search *state) {
    Peak best = {low, -1e300};
    double *rates = state->rates, *gain = state->gain;
    for (int round = 0; round < rounds; round++) {
        double step = pow(high / low, 1.0 / (RATES - 1));
        for (int j = 0; j < RATES; j++)
            rates[j] = low * to_power(step, j);
        gains_at(i, rates, RATES, mix, gain);
        int pick = 0;
        for (int j = 0; j < RATES; j++)
            if (gain[j] > gain[pick])
                pick = j;
        if (gain[pick] > best.gain)
            best = (Peak){rates[pick], gain[pick]};
        low = rates[pick > 0 ? pick - 1 : 0];
        high = rates[pick < RATES - 1 ? pick + 1 : RATES - 1];
    }
    return best;
}

/* Update the expected gain of unit i and the rate at which it is reached. */
static void expect_gain(int64_t i, const Mixture *mix, const Search *state) {
    Peak found = peak(i, state->fault, 8.0, 1, mix, state);
    state->at[i] = found.rate;
    state->expected_gain[i] = found.gain;
    if (found.gain > 0.0 && found.rate < 1.5 * state->fault) {
        double lower = peak(i, state->fault / 16, state->fault, 1, mix, state).gain;
        if (lower > found.gain + LENIENT)
            state->expected_gain[i] = 0.0;
    }
    state->current[i] = true;
}

/* Return the unit whose blame gains most; -1 if none gains the penalty.
 *
 * Gains mostly fall as other units are blamed, so a gain that is out of date is computed again only
 * when it is the highest; before -1 is returned, all are. */
static int64_t strongest(const Mixture *mix, const Search *state) {
    for (;;) {
        int64_t pick = -1;
        double highest = state->penalty;
        for (int64_t i = 0; i < mix->n_units; i++) {
            if (state->candidate[i] && mix->x[i] == 0.0 && state->expected_gain[i] > highest) {
                pick = i;
                highest = state->expected_gain[i];
            }
        }
        if (pick >= 0) {
            if (state->current[pick])
                return pick;
            expect_gain(pick, mix, state);
            continue;
        }
        bool none = true;
        for (int64_t i = 0; i < mix->n_units; i++) {
            if (state->candidate[i] && mix->x[i] == 0.0 && !state->current[i]) {
                expect_gain(i, mix, state);
                none = none && state->expected_gain[i] <= state->penalty;
            }
        }
        if (none)
            return -1;
    }
}

/* Fit the rate of blamed unit i by the parabola through its log-likelihood at three rates on a
 * logarithmic scale; return the gain in nats. */
static double fit(int64_t i, const Mixture *mix, const Search *state) {
    double x = mix->x[i], step = 1.25, *rates = state->rates, *gain = state->gain;
    rates[0] = larger(x / step, state->fault);
    rates[1] = smaller(x * step, DEAD);
    gains_at(i, rates, 2, mix, gain);
    double low = gain[0], high = gain[1], bend = low + high, shift = 0.0;
    if (rates[0] < x / 1.2 && bend < 0.0)
        shift = clipped(0.5 * (low - high) / bend, -4.0, 4.0);
    else if (high > larger(low, 0.0))
        shift = 4.0;
    else if (low > 0.0)
        shift = -4.0;
    rates[0] = clipped(x * pow(step, shift), state->fault, DEAD);
    rates[1] = low > high ? larger(x / step, state->fault) : x * step;
    gains_at(i, rates, 2, mix, gain);
    int pick = gain[0] >= gain[1] ? 0 : 1;
    if (gain[pick] > 1e-2) {
        change(i, rates[pick], mix, state->current);
        return gain[pick];
    }
    return 0.0;
}

/* Fit the rates of all blamed units, in rounds, until a round gains little; return the gain. */
KERNEL double fit_all(const Mixture *mix, const Search *state) {
    double total = 0.0;
    for (int round = 0; round < 20; round++) {
        double gained = 0.0;
        for (int64_t i = 0; i < mix->n_units; i++)
            if (mix->x[i] > 0.0)
                gained += fit(i, mix, state);
        total += gained;
        if (gained < BETTER)
            break;
    }
    return total;
}

/* Blame units until none gains the penalty. */
KERNEL void grow(const Mixture *mix, const Search *state) {
    int64_t added = 0, blamed = 0;
    for (int64_t i = 0; i < mix->n_units; i++)
        blamed += mix->x[i] > 0.0;
    for (;;) {
        int64_t pick = strongest(mix, state);
        if (pick < 0) {
            if (added == 0)
                return;
            added = 0;
            if (fit_all(mix, state) < BETTER)
                return;
            continue;
        }
        change(pick, peak(pick, state->fault, 8.0, 4, mix, state).rate, mix, state->current);
        added++;
        blamed++;
        if (4 * added >= blamed) {
            fit_all(mix, state);
            added = 0;
        }
    }
}

/* Return the cost in nats of releasing blamed unit i, with all other rates fixed. */
static double release_cost(int64_t i, const Mixture *mix, const Search *state) {
    state->rates[0] = 0.0;
    gains_at(i, state->rates, 1, mix, state->gain);
    return -state->gain[0];
}

/* Write to `share` the larger of two shares for each unit: that of its rows and that of its hidden
 * paths that cross unit i, too. */
static void shared_with(int64_t i, const Mixture *mix, const Search *state) {
    const HiddenFlows *hidden = &mix->hidden;
    double *share = state->share, *shared = state->shared;
    memset(shared, 0, (size_t)mix->n_units * sizeof *shared);
    for (int64_t e = mix->over_ptr[i]; e < mix->over_ptr[i + 1]; e++) {
        int64_t p = mix->over[e];
        for (int64_t u = hidden->path_ptr[p]; u < hidden->path_ptr[p + 1]; u++) {
            int64_t j = hidden->units[u];
            shared[j] += 1.0 / (double)(mix->over_ptr[j + 1] - mix->over_ptr[j]);
        }
    }
    for (int64_t j = 0; j < mix->n_units; j++) {
        share[j] = shared[j];
        shared[j] = 0.0;
    }
    for (int64_t e = mix->unit_ptr[i]; e < mix->unit_ptr[i + 1]; e++) {
        int64_t r = mix->rows[e];
        for (int64_t u = mix->ptr[r]; u < mix->ptr[r + 1]; u++) {
            int64_t j = mix->units[u];
            shared[j] += 1.0 / (double)(mix->unit_ptr[j + 1] - mix->unit_ptr[j]);
        }
    }
    for (int64_t j = 0; j < mix->n_units; j++)
        share[j] = larger(share[j], shared[j]);
}

/* Return the unit, blamed or not as asked, that shares most with unit i and was not returned
 * before; -1 if there is none. Its `share` is set to 0. */
static int64_t next_sharing(bool blamed, int64_t i, const Mixture *mix, const Search *state) {
    int64_t pick = -1;
    for (int64_t j = 0; j < mix->n_units; j++) {
        double highest = pick >= 0 ? state->share[pick] : 0.0;
        if (j != i && state->candidate[j] && (mix->x[j] > 0.0) == blamed
            && state->share[j] > highest)
            pick = j;
    }
    if (pick >= 0)
        state->share[pick] = 0.0;
    return pick;
}

/* Return the unit whose blame gains most in place of the released unit i; -1 if none gains. */
static int64_t rival(int64_t i, const Mixture *mix, const Search *state) {
    int64_t pick = -1;
    double highest = 0.0;
    shared_with(i, mix, state);
    for (int nth = 0; nth < RIVALS; nth++) {
        int64_t j = next_sharing(false, i, mix, state);
        if (j < 0)
            break;
        expect_gain(j, mix, state);
        if (state->expected_gain[j] > highest) {
            pick = j;
            highest = state->expected_gain[j];
        }
    }
    return pick;
}

/* Fit the rates of the blamed units that share most with unit i; return the gain in nats. */
static double fit_around(int64_t i, const Mixture *mix, const Search *state) {
    double gained = 0.0;
    for (int round = 0; round < 2; round++) {
        shared_with(i, mix, state);
        for (int nth = 0; nth < RIVALS; nth++) {
            int64_t j = next_sharing(true, i, mix, state);
            if (j < 0)
                break;
            gained += fit(j, mix, state);
        }
    }
    return gained;
}

/* Release unit i, or blame another in its place; return whether this is better. If it is not, the
 * caller has to restore the rates. */
static bool try_release(int64_t i, const Mixture *mix, const Search *state) {
    double cost = release_cost(i, mix, state);
    change(i, 0.0, mix, state->current);
    if (cost < 4.0 * state->penalty)
        cost -= fit_around(i, mix, state);
    if (cost < state->penalty)
        return true;
    int64_t other = rival(i, mix, state);
    if (other < 0)
        return false;
    Peak found = peak(other, state->fault, 8.0, 4, mix, state);
    if (found.gain < cost - state->penalty)
        return false;
    change(other, found.rate, mix, state->current);
    found.gain += fit_around(other, mix, state);
    return found.gain > cost + BETTER;
}

/* Try to release each blamed unit, or to blame another in its place. Return whether any attempt was
 * better. */
KERNEL bool improve(const Mixture *mix, const Search *state) {
    int64_t n = mix->n_units;
    size_t doubles = (size_t)n * sizeof(double), bools = (size_t)n * sizeof(bool);
    bool improved = false;
    for (int64_t i = 0; i < n; i++) {
        if (mix->x[i] == 0.0)
            continue;
        memcpy(state->kept, mix->x, doubles);
        memcpy(state->known, state->current, bools);
        memcpy(state->before, state->expected_gain, doubles);
        memcpy(state->before + n, state->at, doubles);
        if (try_release(i, mix, state)) {
            improved = true;
            continue;
        }
        for (int64_t j = 0; j < n; j++)
            if (mix->x[j] != state->kept[j])
                change(j, state->kept[j], mix, state->current);
        memcpy(state->current, state->known, bools);
        memcpy(state->expected_gain, state->before, doubles);
        memcpy(state->at, state->before + n, doubles);
    }
    return improved;
}

/* Compute the evidence of all units; the gains of units that are not blamed are those of the last
 * search. */
KERNEL void finish(const Mixture *mix, const Search *state) {
    fit_all(mix, state);
    for (int64_t i = 0; i < mix->n_units; i++) {
        double *gain = &state->expected_gain[i];
        if (mix->x[i] > 0.0)
            *gain = release_cost(i, mix, state);
        else
            *gain = state->candidate[i] ? larger(*gain, 0.0) : 0.0;
    }
}
