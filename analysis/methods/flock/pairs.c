/* SPDX-License-Identifier: Apache-2.0 */
/* The members of lists of climbs; see `Climbs` in pairs.py. */

/* Write the different components of each list to `members`, list l's from member_ptr[l] on, and
 * which of them each of `components` is to `nth`. `at`, all -1, is scratch. */
KERNEL void number_members(int64_t n_lists, int64_t n_climbs, int64_t n_entries,
                           int64_t n_components, int64_t room,
                           const int64_t list_ptr[n_lists + 1],
                           const int64_t climb_ptr[n_climbs + 1],
                           const int32_t components[n_entries], int64_t at[n_components],
                           int64_t member_ptr[n_lists + 1], int32_t members[room],
                           int32_t nth[n_entries]) {
    int64_t n = 0;
    for (int64_t list = 0; list < n_lists; list++) {
        int64_t first = member_ptr[list] = n;
        for (int64_t e = climb_ptr[list_ptr[list]]; e < climb_ptr[list_ptr[list + 1]]; e++) {
            int32_t c = components[e];
            if (at[c] < first) {
                at[c] = n;
                members[n++] = c;
            }
            nth[e] = (int32_t)(at[c] - first);
        }
    }
    member_ptr[n_lists] = n;
}
