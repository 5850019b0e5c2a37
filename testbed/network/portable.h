/* SPDX-License-Identifier: Apache-2.0 */
/* What processors and compilers have under different names. */
#ifndef CANARY_NETWORK_PORTABLE_H
#define CANARY_NETWORK_PORTABLE_H

/* A function of which the compiler makes no second copy. */
#ifdef __clang__
#define ONE_COPY __attribute__((noinline))
#else
#define ONE_COPY __attribute__((noinline, noclone))
#endif

/* Tell the processor that this thread waits in a loop. */
static inline void pause_processor(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    __asm__ volatile("yield");
#endif
}

#endif
