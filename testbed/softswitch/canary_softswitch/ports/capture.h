/* SPDX-License-Identifier: Apache-2.0 */
/* What of the packets is kept for a reader: pcap files and a log, as BMv2 writes them. */

enum { PP_TRACE, PP_DEBUG, PP_INFO, PP_WARN, PP_ERROR, PP_OFF };
enum { PP_LOG_LINES = 1 << 16, PP_LOG_HEAD = 128, PP_SNAPLEN = 262144 };

typedef struct {
    int fd; /* -1: no log */
    int level;
    uint64_t dump; /* bytes of each packet */
    char *path;    /* of a file: without .txt; NULL: a stream that is not ours to rotate */
    uint64_t size, max_size;
    uint32_t max_files, used;
    char lines[PP_LOG_LINES];
} pp_log;

/* Opens a file for writing, empty; -1, EMEDIUMTYPE: it is no regular file, or begins with something else than
 * files of its kind do (`own`), and stays as it is. */
static int pp_output(const char *path, int own(const char *, ssize_t)) {
    char head[32];
    struct stat found;
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
    if (fd < 0) {
        if (errno == ELOOP || errno == ENXIO) errno = EMEDIUMTYPE; /* a link; a pipe or socket */
        return -1;
    }
    ssize_t n = fstat(fd, &found) || !S_ISREG(found.st_mode) ? -1 : pread(fd, head, sizeof head, 0);
    if (n >= 0 && (n == 0 || own(head, n)) && !ftruncate(fd, 0)) return fd;
    close(fd);
    errno = EMEDIUMTYPE;
    return -1;
}

/* ---- log ---- */

/* Whether a file begins as `pp_begin` does: [12:34:56.789] [bmv2] */
static int pp_is_log(const char *head, ssize_t n) {
    return n >= 21 && head[0] == '[' && head[3] == ':' && head[6] == ':' && head[9] == '.' &&
           !memcmp(head + 13, "] [bmv2]", 8);
}

/* Whether there is a log at a path, or nothing. */
static int pp_log_at(const char *path) {
    char head[32];
    struct stat found;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT;
    int own = !fstat(fd, &found) && S_ISREG(found.st_mode) &&
              (!found.st_size || pp_is_log(head, pread(fd, head, sizeof head, 0)));
    close(fd);
    return own;
}

static void pp_log_rotate(pp_log *l) {
    char from[4096], to[4096];
    close(l->fd);
    for (uint32_t i = l->max_files; i > 0; i--) {
        if (i > 1) snprintf(from, sizeof from, "%s.%u.txt", l->path, i - 1);
        else snprintf(from, sizeof from, "%s.txt", l->path);
        snprintf(to, sizeof to, "%s.%u.txt", l->path, i);
        if (!pp_log_at(from) || !pp_log_at(to)) continue; /* somebody else's */
        rename(from, to);
    }
    snprintf(to, sizeof to, "%s.txt", l->path);
    l->fd = pp_output(to, pp_is_log);
    l->size = 0;
}

/* Writes what waits; a log that cannot be written must not stop the packets. */
static void pp_log_flush(pp_log *l) {
    uint32_t at = 0;
    while (l->fd >= 0 && at < l->used) {
        ssize_t n = write(l->fd, l->lines + at, l->used - at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        at += (uint32_t)n;
    }
    l->size += l->used;
    l->used = 0;
    if (l->path && l->fd >= 0 && l->size >= l->max_size) pp_log_rotate(l);
}

/* A line's head in spdlog's pattern as BMv2 sets it: [time] [bmv2] [level] [thread id]; 0: the line
 * is not wanted. There is then room for a text of that length. */
static int pp_begin(pp_log *l, int level, uint32_t length) {
    struct timespec t;
    struct tm day;
    if (l->fd < 0 || level < l->level) return 0;
    if (PP_LOG_LINES - l->used < length + PP_LOG_HEAD) pp_log_flush(l);
    clock_gettime(CLOCK_REALTIME, &t);
    localtime_r(&t.tv_sec, &day);
    l->used += (uint32_t)sprintf(l->lines + l->used, "[%02d:%02d:%02d.%03ld] [bmv2] [%c] [thread %d] ",
                                 day.tm_hour, day.tm_min, day.tm_sec, t.tv_nsec / 1000000,
                                 "TDIWE"[level], (int)syscall(SYS_gettid));
    return 1;
}
/* A line of at most 1,899 characters. */
__attribute__((format(printf, 3, 4)))
static void pp_say(pp_log *l, int level, const char *format, ...) {
    va_list arguments;
    int n;
    if (!pp_begin(l, level, 1900)) return;
    va_start(arguments, format);
    n = vsnprintf(l->lines + l->used, 1900, format, arguments);
    va_end(arguments);
    l->used += n < 1900 ? (uint32_t)n : 1899;
    l->lines[l->used++] = '\n';
}
/* A line that the program writes. */
static void pp_say_text(pp_log *l, int level, const char *text, uint32_t length) {
    if (length > PP_LOG_LINES - PP_LOG_HEAD) length = PP_LOG_LINES - PP_LOG_HEAD;
    if (!pp_begin(l, level, length)) return;
    memcpy(l->lines + l->used, text, length);
    l->used += length;
    l->lines[l->used++] = '\n';
}
/* The first bytes of a packet in hex, after a line's text. */
static void pp_dump(pp_log *l, const char *what, uint32_t port, const uint8_t *data,
                    uint32_t length) {
    uint32_t n = l->dump < length ? (uint32_t)l->dump : length;
    if (!l->dump || l->fd < 0 || l->level > PP_INFO) return;
    pp_say(l, PP_INFO, "%s of length %u on port %u: ", what, length, port);
    l->used--; /* the end of the line comes later */
    for (uint32_t i = 0; i < n; i++) {
        if (PP_LOG_LINES - l->used < 8) pp_log_flush(l);
        l->lines[l->used++] = "0123456789abcdef"[data[i] >> 4];
        l->lines[l->used++] = "0123456789abcdef"[data[i] & 15];
    }
    l->lines[l->used++] = '\n';
}

/* ---- pcap ---- */

static const struct {
    uint32_t magic;
    uint16_t major, minor;
    uint32_t zone, figures, snaplen, link;
} pp_pcap_head = {0xA1B2C3D4, 2, 4, 0, 0, PP_SNAPLEN, 1};

static int pp_is_pcap(const char *head, ssize_t n) {
    return n >= (ssize_t)sizeof pp_pcap_head && !memcmp(head, &pp_pcap_head, sizeof pp_pcap_head);
}

static FILE *pp_pcap_open(const char *path) {
    int fd = pp_output(path, pp_is_pcap);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (f && (fwrite(&pp_pcap_head, sizeof pp_pcap_head, 1, f) != 1 || fflush(f))) {
        fclose(f);
        return NULL;
    }
    return f;
}
/* A full disk costs the capture, not the packets. */
static void pp_pcap_write(FILE *f, const uint8_t *data, uint32_t length) {
    struct timespec t;
    uint32_t head[4];
    clock_gettime(CLOCK_REALTIME, &t);
    head[0] = (uint32_t)t.tv_sec;
    head[1] = (uint32_t)(t.tv_nsec / 1000);
    head[2] = head[3] = length;
    if (fwrite(head, sizeof head, 1, f) == 1 && length) fwrite(data, length, 1, f);
}
