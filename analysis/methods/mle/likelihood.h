/* SPDX-License-Identifier: Apache-2.0 */
/* The log-likelihood along one unit's rate, moves that keep the rows' sums, and the law of rates;
 * see likelihood.py. */

static const double DEAD = 60.0;         /* the rate that stands for total loss */
static const double LEAST_RATE = 1e-3;   /* of the mean: how low a healthy unit's x is looked for */
static const double PI = 3.141592653589793;

/* Indices of `law`: the mean rate of a healthy link, the least rate of a blamed one, and the
 * penalty of blaming one, in nats. */
enum { MEAN, FAULT, PENALTY };

/* Rows of known paths, and an explanation of their losses; see `Problem` in likelihood.py. */
typedef struct {
    int64_t n_units;
    int64_t n_rows;
    const int64_t *ptr;      /* [n_rows + 1]: row r is on the units from ptr[r] on */
    const int32_t *units;
    const int64_t *unit_ptr; /* [n_units + 1]: unit i is on the rows from unit_ptr[i] on */
    const int32_t *rows;
    const double *lost;      /* [n_rows]: packets */
    const double *arrived;   /* [n_units]: packets that arrived over each unit */
    const double *size;      /* [n_units]: links */
    double *x;               /* [n_units]: rates, -ln(success) */
    double *total;           /* [n_rows]: their sums */
    bool *blamed;            /* [n_units] */
    double *gains;           /* [n_units]: nats that blaming a unit gains, or releasing costs */
    const bool *candidate;   /* [n_units]: whether a unit lost enough for a fault */
    bool *current;           /* [n_units]: whether its gain is up to date */
    int32_t *queue;          /* [n_units]: scratch of `settle` */
    bool *queued;            /* [n_units] */
    double *kept;            /* [n_units]: scratch, a copy of x */
    double *share;           /* [n_units]: scratch, 0 between calls */
    const double *law;       /* [3] */
} Problem;

static inline double larger(double a, double b) {
    return b > a ? b : a;
}

static inline double smaller(double a, double b) {
    return b < a ? b : a;
}

/* Return the gain in log-likelihood, without the law, of setting x_i to `new` with all other rates
 * fixed. */
static double gain(int64_t i, double new, const Problem *s) {
    double change = new - s->x[i];
    double total = -s->arrived[i] * change;
    for (int64_t e = s->unit_ptr[i]; e < s->unit_ptr[i + 1]; e++) {
        int64_t r = s->rows[e];
        double now = s->total[r];
        total += s->lost[r] * log(expm1(-now - change) / expm1(-now));
    }
    return total;
}

typedef struct {
    double value;
    double slope;
} Losses;

/* Return sum_r k_r / (e^X_r - 1) after x_i changes by `change`, with `own` more losses, and minus
 * the slope of this sum. */
static Losses losses(int64_t i, double own, double change, const Problem *s) {
    double x = s->x[i] + change;
    Losses sum = {own / x, own / (x * x)};
    for (int64_t e = s->unit_ptr[i]; e < s->unit_ptr[i + 1]; e++) {
        int64_t r = s->rows[e];
        double odds = 1.0 / expm1(s->total[r] + change);
        sum.value += s->lost[r] * odds;
        sum.slope += s->lost[r] * odds * (1.0 + odds);
    }
    return sum;
}

/* Return the most likely x_i from `low` to `high` with all other rates fixed, as if `own` more
 * packets had been lost and `more` had arrived.
 *
 * In w = ln(x) the logarithm of the losses' sum is nearly linear, so Newton's steps, kept inside
 * the bracket of a bisection, need a few rounds at every rate. */
static double best(int64_t i, double own, double more, double low, double high, const Problem *s) {
    double arrived = s->arrived[i] + more, now = s->x[i];
    if (arrived <= 0.0)
        return high;
    if (losses(i, own, low - now, s).value <= arrived)
        return low;
    if (losses(i, own, high - now, s).value >= arrived)
        return high;
    double left = log(low), right = log(high);
    double w = low < now && now < high ? log(now) : 0.5 * (left + right);
    for (int round = 0; round < 60; round++) {
        double x = exp(w);
        Losses sum = losses(i, own, x - now, s);
        if (sum.value > arrived)
            left = w;
        else
            right = w;
        double after = 0.5 * (left + right);
        if (sum.value > 0.0 && sum.slope > 0.0) {
            double step = log(sum.value / arrived) * sum.value / (x * sum.slope);
            if (fabs(step) < 1e-9)
                break;
            if (left <= w + step && w + step <= right)
                after = w + step;
        }
        if (fabs(after - w) < 1e-12)
            break;
        w = after;
    }
    return exp(w);
}

/* Return the most likely rate of unit i in its present state, healthy or blamed, with all other
 * rates fixed. */
static double held(int64_t i, const Problem *s) {
    if (s->blamed[i])
        return best(i, 0.0, 0.0, s->law[FAULT], DEAD, s);
    double mean = s->law[MEAN], size = s->size[i];
    return best(i, size, 1.0 / mean, LEAST_RATE * mean * size, s->law[FAULT] * size, s);
}

/* Return the cost in nats of the rate x for unit i if it is healthy: 0 at the mean, more
 * elsewhere. */
static double healthy(int64_t i, double x, const Problem *s) {
    double share = x / (s->law[MEAN] * s->size[i]);
    return s->size[i] * (share - 1.0 - log(share));
}

/* Return the cost in nats of unit i's rate: by the law of healthy links, or the penalty. */
static double law(int64_t i, const Problem *s) {
    return s->blamed[i] ? s->law[PENALTY] : healthy(i, s->x[i], s);
}

/* Return the packets lost on row r that unit i is expected to have lost, in proportion to its
 * rate. */
static double fallen_on(int64_t r, int64_t i, const Problem *s) {
    return s->lost[r] * smaller(s->x[i] / s->total[r], 1.0);
}

/* Return the packets that unit i is expected to have lost, over all its rows. */
SHARED double fallen_on_all(int64_t i, const Problem *s) {
    double total = 0.0;
    for (int64_t e = s->unit_ptr[i]; e < s->unit_ptr[i + 1]; e++)
        total += fallen_on(s->rows[e], i, s);
    return total;
}

/* Set x_i to `new` and update the sums of its rows. */
static void move(int64_t i, double new, const Problem *s) {
    double change = new - s->x[i];
    s->x[i] = new;
    for (int64_t e = s->unit_ptr[i]; e < s->unit_ptr[i + 1]; e++) {
        int64_t r = s->rows[e];
        s->total[r] = larger(s->total[r] + change, 1e-300);
    }
}

/* Mark the gains of all units that share a row with unit i as out of date. */
SHARED void touch(int64_t i, const Problem *s) {
    for (int64_t e = s->unit_ptr[i]; e < s->unit_ptr[i + 1]; e++) {
        int64_t r = s->rows[e];
        for (int64_t f = s->ptr[r]; f < s->ptr[r + 1]; f++)
            s->current[s->units[f]] = false;
    }
}

/* Set units to their most likely rates, one by one, until no unit gains more than `tolerance` nats.
 *
 * The first units are queue[begin] to queue[begin + count - 1] (a ring buffer); then follow those
 * that share a row with a unit whose rate changed. Return the gain of all moves in nats, the law
 * included. */
SHARED double settle(int64_t begin, int64_t count, double tolerance, const Problem *s) {
    int64_t n = s->n_units, budget = 40 * n + 20 * count;
    double gained = 0.0;
    while (count > 0) {
        int64_t i = s->queue[begin];
        begin = begin + 1 < n ? begin + 1 : 0;
        count--;
        s->queued[i] = false;
        if (budget == 0)
            continue;
        budget--;
        double before = law(i, s);
        double new = held(i, s);
        double won = gain(i, new, s);
        won += s->blamed[i] ? 0.0 : before - healthy(i, new, s);
        if (!(won > tolerance))
            continue;
        gained += won;
        move(i, new, s);
        for (int64_t e = s->unit_ptr[i]; e < s->unit_ptr[i + 1]; e++) {
            int64_t r = s->rows[e];
            for (int64_t f = s->ptr[r]; f < s->ptr[r + 1]; f++) {
                int64_t j = s->units[f];
                s->current[j] = false;
                if (j != i && !s->queued[j]) {
                    s->queued[j] = true;
                    s->queue[(begin + count) % n] = (int32_t)j;
                    count++;
                }
            }
        }
    }
    return gained;
}

/* Return by how many nats the evidence of a healthy unit of `size` links, with its rate integrated
 * over the law, is below its likelihood and law at the most likely rate (Laplace's approximation in
 * ln x). */
SHARED double settled(double lost, double size) {
    return size - size * log(size) + lgamma(size) - 0.5 * log(2 * PI / (lost + size));
}

/* Return the integral of x^lost e^(-arrived x) over ln x from a fault's least rate on, relative to
 * its peak, to second order; `expected` is the number of losses expected at that rate. */
static double width(double lost, double expected) {
    if (lost > expected)
        return sqrt(2 * PI / lost)
               * (1.0 - 0.5 * erfc(log(lost / larger(expected, 1e-9)) * sqrt(lost / 2)));
    double off = expected > 0.0 ? (expected - lost) / sqrt(2 * expected) : 0.0;
    if (off > 5.0)
        return 1.0 / (expected - lost);
    return sqrt(0.5 * PI / larger(expected, 1e-9)) * exp(off * off) * erfc(off);
}
