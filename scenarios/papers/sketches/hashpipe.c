/* SPDX-License-Identifier: Apache-2.0 */
/* HashPipe (SOSR 2017, algorithm 1), for `scenarios.papers.sketches.hashpipe`. */

/* Keep the larger of an evicted flow and the one in its entry, stage after stage. */
static void pass_on(int64_t carried, int64_t packets, int64_t stages, int64_t entries,
                    const int32_t *places, int64_t flow[stages][entries],
                    int64_t count[stages][entries]) {
    for (int64_t stage = 1; stage < stages && carried >= 0; stage++) {
        int32_t at = places[carried * stages + stage];
        if (flow[stage][at] == carried) {
            count[stage][at] += packets;
            return;
        }
        if (count[stage][at] < packets) {
            int64_t out = flow[stage][at], out_packets = count[stage][at];
            flow[stage][at] = carried, count[stage][at] = packets;
            carried = out, packets = out_packets;
        }
    }
}

/* Count one packet for each flow of a sequence; write the count that each packet reads to
 * `learned`. Row f of `places` is the entries of flow f, one in each stage. */
KERNEL void add(int64_t n, const int64_t sequence[n], int64_t n_flows, int64_t stages,
                const int32_t places[n_flows][stages], int64_t entries,
                int64_t flow[stages][entries], int64_t count[stages][entries],
                int64_t learned[n]) {
    for (int64_t i = 0; i < n; i++) {
        int64_t key = sequence[i];
        int32_t at = places[key][0];
        if (flow[0][at] == key) {
            learned[i] = ++count[0][at];
            for (int64_t stage = 1; stage < stages; stage++)
                if (flow[stage][places[key][stage]] == key)
                    learned[i] += count[stage][places[key][stage]];
            continue;
        }
        int64_t carried = flow[0][at], packets = count[0][at];
        flow[0][at] = key, count[0][at] = 1, learned[i] = 1;
        pass_on(carried, packets, stages, entries, &places[0][0], flow, count);
    }
}
