/* SPDX-License-Identifier: Apache-2.0 */
/* The schedule of a run on any number of cores, recorded on one (bench_cores.py): of each window and
 * part, the events at switches that others wait for, and at the rest. */
#include "../../testbed/network/virtual.c"

/* What the threads would be at, in ns since the run began, by `hop_ns` an event and `step_ns` a window:
 * `published` and `done` of each part. */
typedef struct {
    double hop_ns, step_ns;
    double *published, *done;
    uint64_t windows, events;
} schedule_t;

/* One window of all parts. A thread runs what nobody waits for while others are behind, as run_step. */
static void record_window(net_t *net, schedule_t *schedule, uint64_t window, uint64_t end) {
    double others = 0;
    for (uint32_t p = 0; p < net->n_parts; p++)
        if (schedule->published[p] > others) others = schedule->published[p];
    for (uint32_t p = 0; p < net->n_parts; p++) {
        part_t *part = &net->parts[p];
        const uint64_t slot = window % WHEEL;
        begin_window(part, window);
        take_mail(part);
        uint32_t awaited = part->wheel[0][slot].n, rest = part->wheel[1][slot].n;
        schedule->events += awaited + rest;
        run_due(part, 0, end);
        run_due(part, 1, end);
        end_window(part);
        atomic_store_explicit(&part->done, part->step, memory_order_relaxed);
        double now = schedule->done[p] + schedule->step_ns;
        if (now < others) {
            now += rest * schedule->hop_ns;
            rest = 0;
            if (now < others) now = others;
        }
        schedule->published[p] = now + awaited * schedule->hop_ns;
        schedule->done[p] = schedule->published[p] + rest * schedule->hop_ns;
    }
    schedule->windows++;
}

/* As net_run, on one thread, by windows, and with a schedule for one thread a part. */
EXPORT int net_record(net_t *net, uint64_t until, schedule_t *schedule) {
    for (uint32_t p = 0; p < net->n_parts; p++) find_all(&net->parts[p]);
    for (uint64_t begin; (begin = upcoming(net)) < until;) {
        uint64_t end = begin + STRETCH * net->window_ns;
        if (end > until) end = until;
        for (uint32_t p = 0; p < net->n_parts; p++) begin_run(&net->parts[p], begin, end);
        for (uint64_t window = net->parts->window; window * net->window_ns < end; window++) {
            uint64_t stop = (window + 1) * net->window_ns;
            record_window(net, schedule, window, stop < end ? stop : end);
        }
        for (uint32_t p = 0; p < net->n_parts; p++) end_run(&net->parts[p], end);
        net->now = end;
        for (uint32_t p = 0; p < net->n_parts; p++)
            if (net->parts[p].oom) return -1;
    }
    end_at(net, until);
    return 0;
}
