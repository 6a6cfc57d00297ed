// Makes system functions fail, or the clock jump, in a program that this library is loaded into (LD_PRELOAD).
//
// FAULT=FUNCTION:CALL:ERRNO fails the call with that number, counted from 1, and later ones if the number ends in `+`.
// FAULT_CALLS=FILE gets the number of calls of the function at the end. CLOCK_JUMPS=1 has every look at the time of
// day differ from the last one by a day, forwards and backwards in turn.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char function[32];
static long fails_at;
static int fails_on;
static int error;
static int clock_jumps;
static long calls;

__attribute__((constructor)) static void begin(void) {
  const char *fault = getenv("FAULT");
  char at[32] = "";
  if (fault && sscanf(fault, "%31[^:]:%31[^:]:%d", function, at, &error) == 3) {
    fails_at = atol(at);
    fails_on = strchr(at, '+') != NULL;
  }
  clock_jumps = getenv("CLOCK_JUMPS") != NULL;
}

__attribute__((destructor)) static void end(void) {
  const char *path = getenv("FAULT_CALLS");
  FILE *file = path ? fopen(path, "w") : NULL;
  if (file) {
    fprintf(file, "%ld", calls);
    fclose(file);
  }
}

static int fails(const char *name) {
  if (strcmp(name, function) != 0) return 0;
  long call = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
  if (call != fails_at && !(fails_on && call > fails_at)) return 0;
  errno = error;
  return 1;
}

// The function that is replaced.
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define REPLACE(result, name, failure, parameters, arguments) \
  result name parameters {                                    \
    if (fails(#name)) return failure;                         \
    return REAL(name) arguments;                              \
  }

REPLACE(ssize_t, read, -1, (int fd, void *bytes, size_t count), (fd, bytes, count))
REPLACE(ssize_t, write, -1, (int fd, const void *bytes, size_t count), (fd, bytes, count))
REPLACE(int, fsync, -1, (int fd), (fd))
REPLACE(int, ftruncate64, -1, (int fd, off64_t length), (fd, length))
REPLACE(int, mkdir, -1, (const char *path, mode_t mode), (path, mode))
REPLACE(int, rename, -1, (const char *from, const char *to), (from, to))
REPLACE(int, statx, -1, (int folder, const char *path, int flags, unsigned mask, struct statx *facts),
        (folder, path, flags, mask, facts))

int open64(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (fails("open64")) return -1;
  return REAL(open64)(path, flags, mode);
}

// Of files only: memory without a file is the allocator's.
void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset) {
  if (fd >= 0 && fails("mmap")) return MAP_FAILED;
  return REAL(mmap)(at, length, protection, flags, fd, offset);
}

void *mmap64(void *at, size_t length, int protection, int flags, int fd, off64_t offset) {
  if (fd >= 0 && fails("mmap")) return MAP_FAILED;
  return REAL(mmap64)(at, length, protection, flags, fd, offset);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  static long looks;
  int result = REAL(clock_gettime)(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME && clock_jumps) {
    time->tv_sec += __atomic_add_fetch(&looks, 1, __ATOMIC_RELAXED) % 2 ? 86400 : -86400;
  }
  return result;
}
