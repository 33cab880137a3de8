/* Writes a title over its command line before its first device call, as setproctitle does, and ends on a line or the end of stdin:
 * titled [WORDS]. */
#include "hazard.h"

int main(int argc, char **argv)
{
    /* The words lie one behind the other. */
    char *end = argv[argc - 1] + strlen(argv[argc - 1]);
    size_t room = (size_t)(end - argv[0]);
    memset(argv[0], 0, room);
    snprintf(argv[0], room, "a title");
    struct work w;
    start_work(&w, 0);
    launch(&w, 100);
    SIM(simStreamSynchronize(w.stream));
    say("ready");
    char line[16];
    if (fgets(line, sizeof line, stdin))
        say("told");
    end_work(&w);
    report();
    say("ok");
    return 0;
}
