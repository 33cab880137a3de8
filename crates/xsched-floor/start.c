/* The start of a program, whatever start files this machine has: those since glibc 2.34 leave the program's constructors to the C
 * library, which older ones do not know. All is hidden. */

#pragma GCC visibility push(hidden)

typedef void (*constructor)(int, char **, char **);
extern constructor __init_array_start[], __init_array_end[];
void _init(void);

/* Older start files name these two. */
void __libc_csu_init(int argc, char **argv, char **environment)
{
    _init();
    for (constructor *each = __init_array_start; each != __init_array_end; each++)
        (*each)(argc, argv, environment);
}

void __libc_csu_fini(void) {}

typedef int (*main_function)(int, char **, char **);
int start_2_2_5(main_function, int, char **, constructor, void (*)(void), void (*)(void), void *)
    __attribute__((visibility("default")));
__asm__(".symver start_2_2_5, __libc_start_main@GLIBC_2.2.5");

int __libc_start_main(main_function main, int argc, char **argv, constructor init, void (*fini)(void),
                      void (*loader_fini)(void), void *stack_end)
{
    return start_2_2_5(main, argc, argv, init ? init : __libc_csu_init, fini, loader_fini, stack_end);
}
