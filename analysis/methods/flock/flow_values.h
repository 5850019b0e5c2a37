/* SPDX-License-Identifier: Apache-2.0 */
/* The log-likelihood of a group's flows if some of the group's paths are bad. */

/* The flows of each group; see `FlowValues` in flow_values.py. */
typedef struct {
    const int64_t *ptr;      /* [n_groups + 1]: group g has the flows ptr[g] to ptr[g + 1] - 1 */
    const double *score;     /* ln(P(bad path) / P(good path)) of each flow */
    const double *bent;      /* expm1(score), or exp(-score) where the score is positive */
    const double *times;     /* how many equal flows each stands for */
    const int64_t *width;    /* [n_groups]: the number of possible paths */
    const int64_t *memo_ptr; /* [n_groups + 1] */
    double *memo;            /* [memo_ptr[n_groups]][2]: bad paths (0: empty) and their value */
} FlowValues;

/* Return the log-likelihood in nats of group g with b bad paths, relative to no bad path; b is
 * limited to 0..width. A flow with s = score and share = b / width adds (section 3.2, equation 1)
 *
 *     ln(1 - share + share e^s) = ln(1 + share expm1(s)), or s + ln(share + (1 - share) e^-s),
 *
 * of which the second does not overflow where s is positive. */
static double value(const FlowValues *values, int64_t g, int64_t b) {
    int64_t width = values->width[g];
    b = least(most(b, 0), width);
    if (b == 0)
        return 0.0;
    int64_t slots = values->memo_ptr[g + 1] - values->memo_ptr[g];
    double *memo = values->memo + 2 * (values->memo_ptr[g] + (b & (slots - 1)));
    if (slots && memo[0] == (double)b)
        return memo[1];
    double total = 0.0;
    if (b == width) {
        for (int64_t f = values->ptr[g]; f < values->ptr[g + 1]; f++)
            total += values->times[f] * values->score[f];
    } else {
        double share = (double)b / (double)width;
        double product = 1.0; /* of flows that stand for themselves: one logarithm for many */
        for (int64_t f = values->ptr[g]; f < values->ptr[g + 1]; f++) {
            double score = values->score[f], bent = values->bent[f], times = values->times[f];
            if (score > 0)
                total += times * (score + log(share + (1 - share) * bent));
            else if (times == 1.0 && product > 1e-200 && share * bent < -0.01)
                product *= 1 + share * bent;
            else
                total += times * log1p(share * bent);
        }
        if (product < 1.0)
            total += log(product);
    }
    if (slots) {
        memo[0] = (double)b;
        memo[1] = total;
    }
    return total;
}
