/* SPDX-License-Identifier: Apache-2.0 */
/* The scores of flows, and the merging of equal ones: what `flow_values` in flow_values.py
 * needs. */

/* The log-odds that loss rates give; see `_Odds` in flow_values.py. */
typedef struct {
    const double *per_lost;    /* [2]: of each lost packet, if the path is known, and if hidden */
    const double *per_arrived; /* [2] */
    double bad;                /* loss rates on bad and on good paths that are known */
    double good;
} Odds;

/* Write the score of each flow to the next free place of its group, free_place[group].
 *
 * With r of t packets lost it is r ln(p_b / p_g) + (t - r) ln((1 - p_b) / (1 - p_g)) (section 3.2);
 * given that some were lost, it is less by ln((1 - (1 - p_b)^t) / (1 - (1 - p_g)^t)). */
KERNEL void place_scores(int64_t n_flows, int64_t n_groups, const int32_t group[n_flows],
                         const int64_t width[n_groups], const int64_t sent[n_flows],
                         const int64_t lost[n_flows], const bool given_loss[n_flows],
                         const Odds *odds, int64_t free_place[n_groups], double score[n_flows]) {
    for (int64_t f = 0; f < n_flows; f++) {
        int64_t g = group[f];
        int hidden = width[g] > 1;
        double total = (double)lost[f] * odds->per_lost[hidden]
                       + (double)(sent[f] - lost[f]) * odds->per_arrived[hidden];
        if (given_loss[f] && !hidden) {
            double bad = expm1((double)sent[f] * log1p(-odds->bad));
            double good = expm1((double)sent[f] * log1p(-odds->good));
            total -= log(bad / good);
        }
        score[free_place[g]++] = total;
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sort numbers in ascending order: quicksort, which C's qsort takes over after `depth` divisions,
 * and insertion sort for what is short. qsort calls a function for each comparison: with it alone,
 * flows of hidden paths took a quarter more time. */
static void sort(double *values, int64_t n, int depth) {
    while (n > 24 && depth-- > 0) {
        double a = values[0], b = values[n / 2], c = values[n - 1];
        double low = a < b ? a : b, high = a < b ? b : a;
        double middle = c < low ? low : c > high ? high : c;
        int64_t i = 0, j = n - 1;
        for (;;) {
            while (values[i] < middle)
                i++;
            while (values[j] > middle)
                j--;
            if (i > j)
                break;
            double moved = values[i];
            values[i++] = values[j];
            values[j--] = moved;
            if (i > j)
                break;
        }
        sort(values, j + 1, depth);
        values += i;
        n -= i;
    }
    if (n > 24) {
        qsort(values, (size_t)n, sizeof *values, ascending);
        return;
    }
    for (int64_t i = 1; i < n; i++) {
        double x = values[i];
        int64_t at = i;
        for (; at > 0 && values[at - 1] > x; at--)
            values[at] = values[at - 1];
        values[at] = x;
    }
}

/* Merge the equal flows of each group in one part of the groups; those of a group with a single
 * path become one, since their scores add up. The scores of group g, score[ptr[g]] to
 * score[ptr[g + 1] - 1], are sorted.
 *
 * Write the distinct scores to `distinct` and how often each occurs to `times`, one group after
 * another, and their number in each group to `count`. Return their number in all groups. */
KERNEL int64_t merge_equal(int64_t part, int64_t parts, int64_t n_groups, int64_t n_flows,
                           const int64_t ptr[n_groups + 1], double score[n_flows],
                           const int64_t width[n_groups], int64_t count[n_groups], int64_t room,
                           double distinct[room], double times[room]) {
    int64_t at = 0;
    for (int64_t g = part_begin(n_groups, part, parts); g < part_end(n_groups, part, parts); g++) {
        double *flows = score + ptr[g];
        int64_t n = ptr[g + 1] - ptr[g], start = at;
        if (width[g] == 1 && n > 0) {
            double sum = 0.0;
            for (int64_t f = 0; f < n; f++)
                sum += flows[f];
            distinct[at] = sum;
            times[at++] = 1.0;
        } else {
            sort(flows, n, 48);
            for (int64_t f = 0; f < n; f++) {
                if (f > 0 && flows[f] == flows[f - 1]) {
                    times[at - 1] += 1.0;
                } else {
                    distinct[at] = flows[f];
                    times[at++] = 1.0;
                }
            }
        }
        count[g] = at - start;
    }
    return at;
}
