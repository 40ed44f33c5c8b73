/* The first process of every pod of the tests: it holds the pod's namespaces, collects what its containers leave behind, and ends when asked. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void collect(int signal) { (void)signal; while (waitpid(-1, 0, WNOHANG) > 0); }
static void leave(int signal) { (void)signal; _exit(0); }
int main(void) {
    signal(SIGCHLD, collect); signal(SIGTERM, leave); signal(SIGINT, leave);
    for (;;) pause();
}
