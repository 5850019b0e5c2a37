/* SPDX-License-Identifier: Apache-2.0 */
/* Frames into one interface, and the time until they leave another. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 64 };

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static int open_on(const char *interface) {
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = __builtin_bswap16(ETH_P_ALL)};
    int one = 1, fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    at.sll_ifindex = (int)if_nametoindex(interface);
    if (fd >= 0 && (setsockopt(fd, SOL_PACKET, 23 /* IGNORE_OUTGOING */, &one, sizeof one) ||
                    bind(fd, (struct sockaddr *)&at, sizeof at))) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Sends a frame again and again; how often, or -1. */
int64_t flood(const char *interface, const uint8_t *frame, uint32_t length, double seconds) {
    struct mmsghdr m[BATCH];
    struct iovec v = {(void *)frame, length};
    int64_t sent = 0, end = now_ns() + (int64_t)(seconds * 1e9);
    int fd = open_on(interface);
    if (fd < 0) return -1;
    memset(m, 0, sizeof m);
    for (int i = 0; i < BATCH; i++) m[i].msg_hdr.msg_iov = &v, m[i].msg_hdr.msg_iovlen = 1;
    while (now_ns() < end) {
        int n = sendmmsg(fd, m, BATCH, 0);
        if (n > 0) sent += n;
    }
    close(fd);
    return sent;
}

/* One frame at a time from one interface to another: nanoseconds each, -1 where it was lost. */
int pass_each(const char *from, const char *to, uint8_t *frame, uint32_t length, int64_t *out,
              uint32_t n) {
    int in = open_on(to), fd = open_on(from);
    uint8_t got[2048];
    if (in < 0 || fd < 0) return -1;
    for (uint32_t i = 0; i < n; i++) {
        struct pollfd p = {in, POLLIN, 0};
        int64_t start = now_ns();
        out[i] = -1;
        memcpy(frame + length - 4, &i, 4); /* not to take one that came late for the next */
        if (send(fd, frame, length, 0) != length) continue;
        while (poll(&p, 1, 1000) == 1 && recv(in, got, sizeof got, 0) == length)
            if (!memcmp(got + length - 4, &i, 4)) {
                out[i] = now_ns() - start;
                break;
            }
    }
    close(in);
    close(fd);
    return 0;
}
