/* Programs end by exit() in a handler: while they post and poll, and in each wait. Another thread works on. */
#include "loopback.h"
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EACH = 12 };

static struct loopback one;

static void on_alarm(int number) {
    (void)number;
    exit(7);
}

static void post_and_poll(void) {
    for (uint64_t at = 0;; at++) {
        int refused = post_write(&one, 0, at, 0, 512);
        CHECK(refused == 0 || refused == ENOMEM);
        struct ibv_wc wc[8];
        int count = ibv_poll_cq(one.cq, 8, wc);
        CHECK(count >= 0);
        for (int each = 0; each < count; each++) CHECK(wc[each].status == IBV_WC_SUCCESS);
    }
}

static void wait_completions(void) {
    struct ibv_cq *cq;
    void *context;
    for (;;) CHECK(!ibv_get_cq_event(one.channel, &cq, &context));
}

static void wait_events(void) {
    struct ibv_async_event event;
    for (;;) CHECK(!ibv_get_async_event(one.context, &event));
}

static void *work(void *none) {
    sigset_t all;
    sigfillset(&all);
    CHECK(!pthread_sigmask(SIG_BLOCK, &all, NULL));
    post_and_poll();
    return none;
}

int main(void) {
    void (*const ways[])(void) = {post_and_poll, wait_completions, wait_events};
    for (int at = 0; at < 3 * EACH; at++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            struct sigaction action = {.sa_handler = on_alarm};
            /* Other moments of a pass each time. */
            struct itimerval once = {.it_value = {.tv_usec = 2000 + 137 * at}};
            one = loopback();
            if (at % 2) {
                pthread_t other;
                CHECK(!pthread_create(&other, NULL, work, NULL));
            }
            CHECK(!sigaction(SIGALRM, &action, NULL) && !setitimer(ITIMER_REAL, &once, NULL));
            ways[at % 3]();
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    puts("ended");
}
