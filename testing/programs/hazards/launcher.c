/* Starts a program as launchers do: launcher HOW ENVIRONMENT PROGRAM [ARGS], and ends as that ends. HOW is the function, with a
 * fork before those that exec; `vfork` is execve after a vfork. ENVIRONMENT is `keep`, `none`, or settings with commas between
 * them, which are then all there is besides PATH and those that libsimdev needs. It uses no device. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void start(const char *how, char **argv, char **env)
{
    if (!strcmp(how, "execve") || !strcmp(how, "vfork"))
        execve(argv[0], argv, env);
    if (!strcmp(how, "execvpe"))
        execvpe(argv[0], argv, env);
    if (!strcmp(how, "execle"))
        execle(argv[0], argv[0], argv[1], argv[2], argv[3], argv[4], argv[5], argv[6], (char *)NULL, env);
    if (!strcmp(how, "fexecve"))
        fexecve(open(argv[0], O_RDONLY | O_CLOEXEC), argv, env);
    if (!strcmp(how, "execveat"))
        execveat(AT_FDCWD, argv[0], argv, env, 0);
    /* Those that take the process's own. */
    environ = env;
    if (!strcmp(how, "execv"))
        execv(argv[0], argv);
    if (!strcmp(how, "execvp"))
        execvp(argv[0], argv);
    if (!strcmp(how, "execl"))
        execl(argv[0], argv[0], argv[1], argv[2], argv[3], argv[4], argv[5], argv[6], (char *)NULL);
    if (!strcmp(how, "execlp"))
        execlp(argv[0], argv[0], argv[1], argv[2], argv[3], argv[4], argv[5], argv[6], (char *)NULL);
    _exit(98);
}

static char **environment(char *what)
{
    static char *only[64];
    if (!strcmp(what, "keep"))
        return environ;
    int n = 0;
    for (char **e = environ; *e; e++)
        if (!strncmp(*e, "PATH=", 5) || !strncmp(*e, "SIMDEV_", 7) || !strncmp(*e, "LD_LIBRARY_PATH=", 16))
            only[n++] = *e;
    char *rest = strcmp(what, "none") ? what : NULL;
    for (char *word; (word = strsep(&rest, ",")) && n < 62;)
        only[n++] = word;
    return only;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 97;
    static char **env;
    env = environment(argv[2]);
    /* Room for six arguments, absent ones null. */
    static char *args[9];
    for (int i = 3; i < argc && i < 10; i++)
        args[i - 3] = argv[i];
    const char *how = argv[1];
    pid_t child;
    if (!strcmp(how, "posix_spawn") || !strcmp(how, "posix_spawnp")) {
        int error = (how[11] ? posix_spawnp : posix_spawn)(&child, args[0], NULL, NULL, args, env);
        if (error)
            return 96;
    } else {
        child = strcmp(how, "vfork") ? fork() : vfork();
        if (child == 0)
            start(how, args, env);
    }
    int status;
    while (waitpid(child, &status, 0) < 0)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 95;
}
