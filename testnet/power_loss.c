// Preloaded into a process, it keeps beside the directory $POWER_LIVE a directory $POWER_SHADOW with
// what a disk would hold if the power went out now. testnet/power_loss.py says what is assumed.
//
// shadow/.inodes/N is what is durable of the file whose inode in the live directory is N; names in
// the shadow are hard links to these. A file is followed from its first opening for writing. Real
// fsyncs are left out: a killed process loses nothing that it has written, and time is saved.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 4096
#define FDS 4096
#define NAME 256
#define FOLDER 1024
typedef struct {
    int is_used, is_gone;
    ino_t ino;
    char live[NAME], durable[NAME];  // names beneath the two directories; empty for none
    off_t low, high;                 // bytes written and not yet durable
    int from, to;                    // open files of the two copies, or -1
} File;

static File files[FILES];
static File *opened[FDS];
static char live[FOLDER], shadow[FOLDER];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void die(const char *what) {
    fprintf(stderr, "power_loss: %s: %s\n", what, strerror(errno));
    abort();
}

__attribute__((constructor)) static void begin(void) {
    const char *from = getenv("POWER_LIVE"), *to = getenv("POWER_SHADOW");
    int length = snprintf(live, sizeof live, "%s/", from ? from : "/nowhere");
    int other = snprintf(shadow, sizeof shadow, "%s/", to ? to : "/nowhere");
    if (length >= FOLDER || other >= FOLDER) die("the paths are too long");
}

static const char *beneath(const char *path) {
    size_t length = strlen(live);
    return strncmp(path, live, length) ? NULL : path + length;
}

static const char *shadow_of(char *buffer, const char *name) {
    if (snprintf(buffer, PATH_MAX, "%s%s", shadow, name) >= PATH_MAX) die(name);
    return buffer;
}

static const char *content_of(char *buffer, ino_t ino) {
    snprintf(buffer, PATH_MAX, "%s.inodes/%llu", shadow, (unsigned long long)ino);
    return buffer;
}

static File *by_inode(ino_t ino) {
    for (File *file = files; file < files + FILES; file++)
        if (file->is_used && !file->is_gone && file->ino == ino) return file;
    return NULL;
}

static File *by_name(const char *name) {
    for (File *file = files; file < files + FILES; file++)
        if (file->is_used && !file->is_gone && !strcmp(file->live, name)) return file;
    return NULL;
}

static File *by_durable(const char *name) {
    for (File *file = files; file < files + FILES; file++)
        if (file->is_used && !strcmp(file->durable, name)) return file;
    return NULL;
}

// Begins to follow a file. What is in the shadow under its name and is no other file's is its own.
static File *follow(const char *name, ino_t ino) {
    char path[PATH_MAX], content[PATH_MAX];
    File *file = files;
    while (file < files + FILES && file->is_used) file++;
    if (file == files + FILES || strlen(name) >= NAME) { errno = ENFILE; die(name); }
    memset(file, 0, sizeof *file);
    int is_ours = !access(shadow_of(path, name), F_OK) && !by_durable(name);
    file->is_used = 1;
    file->ino = ino;
    file->from = file->to = -1;
    strcpy(file->live, name);
    if (is_ours) strcpy(file->durable, name);
    else {
        // The number may have been that of a file that is gone.
        unlink(content_of(content, ino));
        int made = REAL(open)(content, O_WRONLY | O_CREAT | O_EXCL, 0600);
        if (made < 0) die(content);
        REAL(close)(made);
    }
    return file;
}

static void forget(File *file) {
    if (file->from >= 0) REAL(close)(file->from);
    if (file->to >= 0) REAL(close)(file->to);
    for (int fd = 0; fd < FDS; fd++)
        if (opened[fd] == file) opened[fd] = NULL;
    file->is_used = 0;
}

static void dirty(File *file, off_t low, off_t high) {
    if (file->low == file->high) { file->low = low; file->high = high; }
    if (low < file->low) file->low = low;
    if (high > file->high) file->high = high;
}

// The name that the file has now is durable, whatever had it before.
static void sync_name(File *file) {
    char name[PATH_MAX], aside[PATH_MAX], content[PATH_MAX], old[PATH_MAX];
    if (!strcmp(file->live, file->durable)) return;
    File *before = by_durable(file->live);
    if (before) before->durable[0] = 0;
    snprintf(aside, sizeof aside, "%s.inodes/link", shadow);
    unlink(aside);
    if (link(content_of(content, file->ino), aside)) die(content);
    if (rename(aside, shadow_of(name, file->live))) die(name);
    if (file->durable[0]) unlink(shadow_of(old, file->durable));
    strcpy(file->durable, file->live);
}

static void sync_file(File *file, int fd) {
    char path[PATH_MAX], buffer[65536];
    struct stat now;
    if (file->from < 0) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        file->from = REAL(open)(path, O_RDONLY | O_CLOEXEC);
        file->to = REAL(open)(content_of(path, file->ino), O_WRONLY | O_CLOEXEC);
        if (file->from < 0 || file->to < 0) die(path);
    }
    if (fstat(file->from, &now)) die(file->live);
    while (file->low < file->high) {
        size_t want = file->high - file->low;
        ssize_t got = pread(file->from, buffer, want < sizeof buffer ? want : sizeof buffer, file->low);
        if (got <= 0) break;
        if (REAL(pwrite)(file->to, buffer, got, file->low) != got) die(file->live);
        file->low += got;
    }
    if (REAL(ftruncate)(file->to, now.st_size)) die(file->live);
    file->low = file->high = 0;
    // ext4 commits a new file's name with its first fsync. It is the least that must be assumed.
    if (!file->durable[0]) sync_name(file);
}

static int is_in(const char *name, const char *directory) {
    char parent[NAME];
    strcpy(parent, name);
    char *slash = strrchr(parent, '/');
    if (slash) *slash = 0;
    return !strcmp(slash ? parent : "", directory);
}

static void sync_directory(const char *directory) {
    char path[PATH_MAX];
    for (File *file = files; file < files + FILES; file++)
        if (file->is_used && !file->is_gone && is_in(file->live, directory)) sync_name(file);
    for (File *file = files; file < files + FILES; file++)
        if (file->is_used && file->is_gone && is_in(file->live, directory)) {
            if (file->durable[0]) unlink(shadow_of(path, file->durable));
            forget(file);
        }
}

static int opened_as(int fd, const char *path, int flags) {
    struct stat now;
    const char *name = beneath(path);
    if (fd < 0 || !name || !(flags & (O_WRONLY | O_RDWR))) return fd;
    if (fstat(fd, &now) || !S_ISREG(now.st_mode)) return fd;
    if (fd >= FDS) { errno = EMFILE; die(path); }
    pthread_mutex_lock(&lock);
    File *file = by_inode(now.st_ino);
    if (!file) file = follow(name, now.st_ino);
    opened[fd] = file;
    if (flags & O_TRUNC) dirty(file, 0, 1);
    pthread_mutex_unlock(&lock);
    return fd;
}

static int synced(int fd) {
    char link[64], path[PATH_MAX];
    if (fd < 0 || fd >= FDS) return 0;
    if (opened[fd]) {
        pthread_mutex_lock(&lock);
        sync_file(opened[fd], fd);
        pthread_mutex_unlock(&lock);
        return 1;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 2);
    struct stat now;
    if (length < 0 || fstat(fd, &now) || !S_ISDIR(now.st_mode)) return 0;
    strcpy(path + length, "/");
    const char *name = beneath(path);
    if (!name) return 0;
    path[length] = 0;
    pthread_mutex_lock(&lock);
    sync_directory(*name ? name : "");
    pthread_mutex_unlock(&lock);
    return 1;
}

static void wrote(int fd, off_t low, off_t high) {
    if (fd < 0 || fd >= FDS || !opened[fd] || low == high) return;
    pthread_mutex_lock(&lock);
    dirty(opened[fd], low, high);
    pthread_mutex_unlock(&lock);
}

// What follows has the place of the C library's own functions.

#define OPEN(name)                                                \
    int name(const char *path, int flags, ...) {                  \
        va_list rest;                                             \
        va_start(rest, flags);                                    \
        mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                             \
        return opened_as(REAL(name)(path, flags, mode), path, flags); \
    }
OPEN(open)
OPEN(open64)

// Programs that were built with checks of the C library call these.
int __open_2(const char *path, int flags) { return open(path, flags); }
int __open64_2(const char *path, int flags) { return open64(path, flags); }

int close(int fd) {
    if (fd >= 0 && fd < FDS) opened[fd] = NULL;
    return REAL(close)(fd);
}

ssize_t write(int fd, const void *data, size_t size) {
    ssize_t done = REAL(write)(fd, data, size);
    if (done > 0 && fd >= 0 && fd < FDS && opened[fd]) {
        off_t end = lseek(fd, 0, SEEK_CUR);
        wrote(fd, end - done, end);
    }
    return done;
}

#define PWRITE(name, offset_type)                                                   \
    ssize_t name(int fd, const void *data, size_t size, offset_type offset) {       \
        ssize_t done = REAL(name)(fd, data, size, offset);                          \
        if (done > 0) wrote(fd, offset, offset + done);                             \
        return done;                                                                \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define TRUNCATE(name, offset_type)                     \
    int name(int fd, offset_type size) {                \
        int code = REAL(name)(fd, size);                \
        if (!code) wrote(fd, size, size + 1);           \
        return code;                                    \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

int fsync(int fd) { return synced(fd) ? 0 : REAL(fsync)(fd); }
int fdatasync(int fd) { return synced(fd) ? 0 : REAL(fdatasync)(fd); }

// The file of this name, followed from now on if it was not; NULL for none of ours.
static File *named(const char *path) {
    struct stat now;
    const char *name = beneath(path);
    if (!name || stat(path, &now) || !S_ISREG(now.st_mode)) return NULL;
    File *file = by_name(name);
    return file ? file : follow(name, now.st_ino);
}

int unlink(const char *path) {
    if (!beneath(path)) return REAL(unlink)(path);
    pthread_mutex_lock(&lock);
    File *file = named(path);
    int code = REAL(unlink)(path);
    if (!code && file) file->is_gone = 1;
    pthread_mutex_unlock(&lock);
    return code;
}

int rename(const char *from, const char *to) {
    if (!beneath(from) || !beneath(to)) return REAL(rename)(from, to);
    pthread_mutex_lock(&lock);
    File *file = named(from), *before = named(to);
    int code = REAL(rename)(from, to);
    if (!code && before && before != file) before->is_gone = 1;
    if (!code && file) strcpy(file->live, beneath(to));
    pthread_mutex_unlock(&lock);
    return code;
}
