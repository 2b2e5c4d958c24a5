/* Lets the n-th of some calls of this process fail, as a full disk, a table without room or a lack of memory makes them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include <signal.h>
#include <sys/mman.h>

static long count, allocated, fails_at, kills_at, allocation;
static int error_number = ENOSPC, owner, stays;

/* Of this process alone: tools that it starts count nothing. With `on`, later calls fail too, as on a disk that is full. */
void fault_arm(long fail, long kill_at, int number, int on) {
    count = 0; fails_at = fail; kills_at = kill_at; error_number = number; stays = on; owner = getpid();
}
void fault_arm_allocation(long fail) { allocated = 0; allocation = fail; owner = getpid(); }
long fault_count(void) { return count; }
long fault_allocations(void) { return allocated; }

static int hit(void) {
    if (owner != getpid()) return 0;
    long n = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    if (kills_at && n == kills_at) kill(getpid(), SIGKILL);
    if (fails_at && (n == fails_at || (stays && n > fails_at))) { errno = error_number; return 1; }
    return 0;
}
static int regular(int fd) { struct stat s; return fstat(fd, &s) == 0 && S_ISREG(s.st_mode); }
#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void* data, size_t size) { REAL(write); if (regular(fd) && hit()) return -1; return real(fd, data, size); }
int fsync(int fd) { REAL(fsync); return hit() ? -1 : real(fd); }
int rename(const char* a, const char* b) { REAL(rename); return hit() ? -1 : real(a, b); }
int renameat(int d, const char* a, int e, const char* b) { REAL(renameat); return hit() ? -1 : real(d, a, e, b); }
int renameat2(int d, const char* a, int e, const char* b, unsigned f) { REAL(renameat2); return hit() ? -1 : real(d, a, e, b, f); }
int mkdir(const char* p, mode_t m) { REAL(mkdir); return hit() ? -1 : real(p, m); }
int mkdirat(int d, const char* p, mode_t m) { REAL(mkdirat); return hit() ? -1 : real(d, p, m); }
pid_t fork(void) { REAL(fork); return hit() ? -1 : real(); }
pid_t vfork(void) { if (hit()) return -1; REAL(fork); return real(); }
int open(const char* path, int flags, ...) {
    REAL(open); mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) { va_list a; va_start(a, flags); mode = va_arg(a, mode_t); va_end(a); }
    return (flags & O_CREAT) && hit() ? -1 : real(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
    REAL(open64); mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) { va_list a; va_start(a, flags); mode = va_arg(a, mode_t); va_end(a); }
    return (flags & O_CREAT) && hit() ? -1 : real(path, flags, mode);
}

/* Memory: glibc's own names are called, since dlsym allocates. Only one allocation fails. */
extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
static int refused(void) {
    if (!owner || owner != getpid()) return 0;
    long n = __atomic_add_fetch(&allocated, 1, __ATOMIC_RELAXED);
    if (allocation && n == allocation) { errno = ENOMEM; return 1; }
    return 0;
}
void* malloc(size_t size) { return refused() ? NULL : __libc_malloc(size); }
void* calloc(size_t many, size_t size) { return refused() ? NULL : __libc_calloc(many, size); }
void* realloc(void* old, size_t size) { return refused() ? NULL : __libc_realloc(old, size); }
void* mmap(void* at, size_t size, int how, int flags, int fd, off_t from) {
    REAL(mmap);
    return (flags & MAP_ANONYMOUS) && refused() ? MAP_FAILED : real(at, size, how, flags, fd, from);
}
