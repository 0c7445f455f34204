/* The waits for events obey O_NONBLOCK, return on a signal, and may be cancelled; ends wait for acknowledgements. */
#define _GNU_SOURCE
#include "loopback.h"
#include "sleeps.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>

static struct loopback one;
static atomic_int acknowledged, waiting;

static void on_alarm(int number) { (void)number; }

static int wait_completion(void) {
    struct ibv_cq *cq;
    void *context;
    int done = ibv_get_cq_event(one.channel, &cq, &context);
    if (done == 0) CHECK(cq == one.cq && context == cq->cq_context);
    return done;
}

static int wait_async(void) {
    struct ibv_async_event event;
    return ibv_get_async_event(one.context, &event);
}

static void *completions(void *none) {
    atomic_store(&waiting, gettid());
    wait_completion();
    return none;
}

static void *events(void *none) {
    atomic_store(&waiting, gettid());
    wait_async();
    return none;
}

static void *destroy(void *none) {
    CHECK(!ibv_destroy_cq(one.cq));
    CHECK(atomic_load(&acknowledged));
    return none;
}

static void without_blocking(int descriptor, int (*wait)(void)) {
    int flags = fcntl(descriptor, F_GETFL);
    CHECK(!fcntl(descriptor, F_SETFL, flags | O_NONBLOCK));
    CHECK(wait() == -1 && errno == EAGAIN);
    CHECK(!fcntl(descriptor, F_SETFL, flags));
}

static void with_a_signal(int (*wait)(void)) {
    struct itimerval again = {.it_interval = {.tv_usec = 20000}, .it_value = {.tv_usec = 20000}}, never = {0};
    CHECK(!setitimer(ITIMER_REAL, &again, NULL));
    CHECK(wait() == -1 && errno == EINTR);
    CHECK(!setitimer(ITIMER_REAL, &never, NULL));
}

/* A thread is cancelled before it waits, and another one in its wait. */
static void cancelled(void *(*wait)(void *)) {
    for (int sleeps = 0; sleeps < 2; sleeps++) {
        pthread_t thread;
        void *result;
        atomic_store(&waiting, 0);
        CHECK(!pthread_create(&thread, NULL, wait, NULL));
        if (sleeps) until_it_sleeps(&waiting);
        CHECK(!pthread_cancel(thread) && !pthread_join(thread, &result));
        CHECK(result == PTHREAD_CANCELED);
    }
}

int main(void) {
    pthread_t thread;
    struct sigaction action = {.sa_handler = on_alarm};
    CHECK(!sigaction(SIGALRM, &action, NULL));
    one = loopback();
    /* Each queue pair tells that its peer has come, when the first packet finds it in RTR: none did here. */
    without_blocking(one.channel->fd, wait_completion);
    without_blocking(one.context->async_fd, wait_async);
    with_a_signal(wait_completion);
    with_a_signal(wait_async);
    cancelled(completions);
    cancelled(events);

    /* One report for each request for one, however many completions came. */
    CHECK(!ibv_req_notify_cq(one.cq, 0));
    for (int at = 0; at < 3; at++) CHECK(!post_write(&one, 0, at, 0, 64));
    for (int at = 0; at < 3; at++) CHECK(wait_one(&one).status == IBV_WC_SUCCESS);
    struct pollfd ready = {.fd = one.channel->fd, .events = POLLIN};
    CHECK(poll(&ready, 1, 10000) == 1);
    CHECK(wait_completion() == 0);
    CHECK(poll(&ready, 1, 0) == 0);

    /* Nobody polls: the NIC's own thread brings what comes. */
    CHECK(!ibv_req_notify_cq(one.cq, 0));
    CHECK(!post_write(&one, 0, 7, 0, 64));
    CHECK(wait_completion() == 0);
    CHECK(wait_one(&one).wr_id == 7);

    /* A thread that was cancelled while it waited for packets is not waited for. */
    CHECK(!ibv_req_notify_cq(one.cq, 0));
    CHECK(!pthread_create(&thread, NULL, completions, NULL));
    CHECK(!pthread_cancel(thread) && !pthread_join(thread, NULL));
    for (int at = 0; at < 20; at++) {
        CHECK(!post_write(&one, 0, 100 + at, 0, 64));
        CHECK(wait_completion() == 0);
        CHECK(!ibv_req_notify_cq(one.cq, 0));
        CHECK(wait_one(&one).wr_id == (uint64_t)(100 + at));
    }

    CHECK(!ibv_destroy_qp(one.qp[0]) && !ibv_destroy_qp(one.qp[1]));
    CHECK(!pthread_create(&thread, NULL, destroy, NULL));
    struct timespec while_it_waits = {.tv_nsec = 50000000};
    nanosleep(&while_it_waits, NULL);
    atomic_store(&acknowledged, 1);
    ibv_ack_cq_events(one.cq, 22);
    CHECK(!pthread_join(thread, NULL));
    CHECK(!ibv_destroy_comp_channel(one.channel));
    puts("waited");
}
