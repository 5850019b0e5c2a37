/* SPDX-License-Identifier: Apache-2.0 */
/* Large pages for the memory that many switches lie in.
 *
 * A packet reads a little of each of many places of a switch: tables, rows, groups. In a fabric of
 * hundreds of switches these lie on more pages of 4 kB than a processor knows the addresses of, and
 * looking these up takes longer than reading. Where a system has no large pages, nothing happens.
 */
#ifndef CANARY_NETWORK_PAGES_H
#define CANARY_NETWORK_PAGES_H
#include "links.h"

#ifdef __GLIBC__
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#define MANY_SWITCHES 100           /* fewer stay in the cache */
#define LARGE_PAGE ((uintptr_t)2 << 20)
#define HEAP_STEP (64 << 20)        /* by which the heap then grows, so that it grows in large pages */
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

/* Before a run: the heap, from the first switch to its end, or what it has grown by. */
static void use_large_pages(net_t *net) {
    uintptr_t first = net->large_pages, end = (uintptr_t)sbrk(0) & ~(LARGE_PAGE - 1);
    if (net->n_switches <= MANY_SWITCHES || first == end) return;
    if (!first) {
        first = UINTPTR_MAX;
        for (uint32_t i = 0; i < net->n_switches; i++)
            if ((uintptr_t)net->switches[i] < first) first = (uintptr_t)net->switches[i];
        first = (first + LARGE_PAGE - 1) & ~(LARGE_PAGE - 1);
        if (first >= end) return; /* they lie elsewhere */
        mallopt(M_TOP_PAD, HEAP_STEP);
        if (!madvise((void *)first, end - first, MADV_HUGEPAGE))
            madvise((void *)first, end - first, MADV_COLLAPSE);
    } else if (first < end) {
        madvise((void *)first, end - first, MADV_HUGEPAGE);
    }
    net->large_pages = end;
}
#else
static void use_large_pages(net_t *net) { (void)net; }
#endif
#endif
