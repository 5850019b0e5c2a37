/* SPDX-License-Identifier: Apache-2.0 */
/* `analysis.solvers.incidence.Incidence`: path j uses the local links links[path_ptr[j]] to
 * links[path_ptr[j + 1] - 1], link i is on the paths paths[link_ptr[i]] to
 * paths[link_ptr[i + 1] - 1]. */
typedef struct {
    int64_t n_paths;
    int64_t n_links;
    const int64_t *path_ptr;
    const int32_t *links;
    const int64_t *link_ptr;
    const int32_t *paths;
} Incidence;
