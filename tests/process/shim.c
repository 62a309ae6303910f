/* Put between a worker and the C library (LD_PRELOAD), so that the shipped code runs as it is.
 *
 * HAPAX_TEST_CLOCK=FILE  the host's clock is off by the milliseconds in FILE, 8 bytes, read anew at every question.
 * HAPAX_TEST_KILL=N      SIGKILL before the N-th call that changes a file of a database, the first being 0;
 * HAPAX_TEST_KILL=N-half in the middle of it, if it writes: half of the bytes are there.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000LL
#define NS_PER_MS 1000000LL

static _Atomic int64_t *clock_ms;
static int64_t kill_at = -1;
static int kill_half;
static _Atomic int64_t changes;

__attribute__((constructor)) static void begin(void) {
    const char *file = getenv("HAPAX_TEST_CLOCK");
    if (file != NULL) {
        int fd = open(file, O_RDONLY);
        void *mapped = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
        if (mapped == MAP_FAILED) abort();
        clock_ms = mapped;
    }
    const char *number = getenv("HAPAX_TEST_KILL");
    if (number != NULL) {
        kill_at = atoll(number);
        kill_half = strstr(number, "-half") != NULL;
    }
}

static void *next(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL) abort();
    return found;
}

int clock_gettime(clockid_t id, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL) real = next("clock_gettime");
    int result = real(id, time);
    if (result == 0 && clock_ms != NULL && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        int64_t at = time->tv_sec * NS_PER_S + time->tv_nsec + atomic_load(clock_ms) * NS_PER_MS;
        time->tv_sec = at / NS_PER_S;
        time->tv_nsec = at % NS_PER_S;
    }
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return result;
}

/* Whether `path` is a database, its log or its journal. */
static int database(const char *path) { return strstr(path, ".db") != NULL; }

static int is_database(int fd) {
    char link[32], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return database(path);
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Counts a change; whether it is to be done by half. */
static int change(int counts) {
    if (kill_at < 0 || !counts || atomic_fetch_add(&changes, 1) != kill_at) return 0;
    if (!kill_half) die();
    return 1;
}

ssize_t write(int fd, const void *bytes, size_t count) {
    static ssize_t (*real)(int, const void *, size_t);
    if (real == NULL) real = next("write");
    if (kill_at >= 0 && change(is_database(fd))) {
        real(fd, bytes, count / 2);
        die();
    }
    return real(fd, bytes, count);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (real == NULL) real = next("pwrite64");
    if (kill_at >= 0 && change(is_database(fd))) {
        real(fd, bytes, count / 2, at);
        die();
    }
    return real(fd, bytes, count, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) { return pwrite64(fd, bytes, count, at); }

#define CHANGE_OF_FD(name, parameters, arguments)                              \
    int name parameters {                                                      \
        static int(*real) parameters;                                          \
        if (real == NULL) real = next(#name);                                  \
        if (kill_at >= 0 && change(is_database(fd))) die();                    \
        return real arguments;                                                 \
    }
CHANGE_OF_FD(fsync, (int fd), (fd))
CHANGE_OF_FD(fdatasync, (int fd), (fd))
CHANGE_OF_FD(ftruncate, (int fd, off_t length), (fd, length))
CHANGE_OF_FD(ftruncate64, (int fd, off64_t length), (fd, length))

int unlink(const char *path) {
    static int (*real)(const char *);
    if (real == NULL) real = next("unlink");
    if (kill_at >= 0 && change(database(path))) die();
    return real(path);
}
