/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of possible paths, and the flows that took one of them; see hidden.py. */

/* See `HiddenFlows` in hidden.py. */
typedef struct {
    int64_t n_sets;
    const int64_t *set_ptr;  /* [n_sets + 1]: set g has the paths from set_ptr[g] on */
    const int32_t *path_ptr; /* [n_paths + 1]: path p is over the units from path_ptr[p] on */
    const int32_t *units;
    const float *many;       /* [n_paths]: how many alike paths each stands for */
    const int64_t *flow_ptr; /* [n_sets + 1]: set g has the flows from flow_ptr[g] on */
    const double *arrived;   /* [n_flows]: packets */
    const double *lost;      /* [n_flows]: packets; negative: the divisor of reported flows */
    const double *times;     /* [n_flows]: how often each flow counts */
    const double *hops;      /* [n_sets]: links of a path */
} HiddenFlows;
