/* Functions that glibc 2.28 has in its libc_nonshared.a only. All are hidden. */

#pragma GCC visibility push(hidden)

extern void *__dso_handle;

int __cxa_atexit(void (*)(void *), void *, void *) __attribute__((visibility("default")));
/* Weak, as musl has none. */
int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *)
    __attribute__((weak, visibility("default")));

int atexit(void (*function)(void))
{
    return __cxa_atexit((void (*)(void *))function, 0, __dso_handle);
}

int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    /* 38 is ENOSYS. */
    return __register_atfork ? __register_atfork(prepare, parent, child, __dso_handle) : 38;
}

#ifndef PRELOAD

int __xstat64(int, const char *, void *) __attribute__((visibility("default")));
int __fxstat64(int, int, void *) __attribute__((visibility("default")));
int __lxstat64(int, const char *, void *) __attribute__((visibility("default")));
int __fxstatat64(int, int, const char *, void *, int) __attribute__((visibility("default")));

/* struct stat is the kernel's, with and without "64"; 1 is the version of it that the functions above want to be told. */
int stat64(const char *path, void *out) { return __xstat64(1, path, out); }
int fstat64(int fd, void *out) { return __fxstat64(1, fd, out); }
int lstat64(const char *path, void *out) { return __lxstat64(1, path, out); }
int fstatat64(int fd, const char *path, void *out, int flags) { return __fxstatat64(1, fd, path, out, flags); }
int stat(const char *path, void *out) { return __xstat64(1, path, out); }
int fstat(int fd, void *out) { return __fxstat64(1, fd, out); }
int lstat(const char *path, void *out) { return __lxstat64(1, path, out); }
int fstatat(int fd, const char *path, void *out, int flags) { return __fxstatat64(1, fd, path, out, flags); }

#endif
