/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that move packets. Each waits for the ports of its sets together, so a packet that goes
 * on to another switch of the same thread costs no change of threads. */

static void *pp_loop(void *arg) {
    pp_worker *w = arg;
    struct epoll_event e[64];
    pthread_setname_np(pthread_self(), "packets");
    for (;;) {
        int n = epoll_wait(w->epoll, e, 64, -1);
        if (n < 0 && errno != EINTR) return NULL;
        pp_lock_stepping_back(&w->working, &w->waiting);
        for (int i = 0; i < n; i++) {
            uint64_t who = e[i].data.u64;
            pp_port *p = (pp_port *)(uintptr_t)who;
            pp_set *s;
            if (!who) {
                pthread_mutex_unlock(&w->working);
                return NULL;
            }
            if (who & PP_TIMER) s = (pp_set *)(uintptr_t)(who - PP_TIMER);
            else s = p->set;
            if (who & PP_TIMER || e[i].events & EPOLLOUT) {
                pp_lock_packets(s, &w->space);
                if (who & PP_TIMER) pp_timer(s);
                else pp_drain(s, p);
                pp_finish(s);
                pthread_mutex_unlock(&s->lock);
            }
            if (!(who & PP_TIMER) && e[i].events & ~(uint32_t)EPOLLOUT) pp_receive(w, p);
        }
        pthread_mutex_unlock(&w->working);
    }
}

static int pp_worker_start(pp_worker *w) {
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = 0};
    int error;
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w->buffers = malloc((size_t)PP_BATCH * PP_ROOM);
    w->space.arena = malloc(PP_ARENA);
    pthread_mutex_init(&w->working, NULL);
    if (w->epoll < 0 || w->wake < 0) return -errno;
    if (!w->buffers || !w->space.arena) return -ENOMEM;
    pp_prepare(w);
    if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->wake, &e)) return -errno;
    error = pthread_create(&w->thread, NULL, pp_loop, w);
    w->running = !error;
    return -error;
}

/* Ends the threads; no set may be left. */
void pp_pool_destroy(pp_pool *pool) {
    uint64_t one = 1;
    for (uint32_t i = 0; i < pool->n; i++) {
        pp_worker *w = pool->workers + i;
        if (w->running && write(w->wake, &one, sizeof one) == (ssize_t)sizeof one)
            pthread_join(w->thread, NULL);
        if (w->epoll >= 0) close(w->epoll);
        if (w->wake >= 0) close(w->wake);
        free(w->buffers);
        free(w->space.arena);
    }
    free(pool->space.arena);
    free(pool);
}

/* Starts n threads: 0 or -errno. */
int pp_pool_create(uint32_t n, pp_pool **made) {
    pp_pool *pool = calloc(1, sizeof *pool + n * sizeof *pool->workers);
    int error = 0;
    if (!pool) return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) pool->workers[i].epoll = pool->workers[i].wake = -1;
    pool->n = n;
    pthread_mutex_init(&pool->injecting, NULL);
    if (!(pool->space.arena = malloc(PP_ARENA))) error = -ENOMEM;
    for (uint32_t i = 0; i < n && !error; i++) error = pp_worker_start(pool->workers + i);
    if (error) pp_pool_destroy(pool);
    else *made = pool;
    return error;
}
