/* opens LIBRARY: loads a library as an extension module does, and ends. */
#include <dlfcn.h>

int main(int argc, char **argv)
{
    return argc != 2 || !dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL);
}
