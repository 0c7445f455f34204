/* Waits for events obey O_NONBLOCK, return on a signal and may be cancelled. Destroying waits for
   acknowledgements. */
#define _GNU_SOURCE
#include "sides.h"
#include "sleeps.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <time.h>

static struct rdma_event_channel *channel;
static atomic_int acknowledged, waiting;

static void on_alarm(int number) { (void)number; }

static void *wait_event(void *none) {
    struct rdma_cm_event *event;
    atomic_store(&waiting, gettid());
    rdma_get_cm_event(channel, &event);
    return none;
}

static void *destroy(void *id) {
    CHECK(!rdma_destroy_id(id));
    CHECK(atomic_load(&acknowledged));
    return NULL;
}

int main(void) {
    struct rdma_cm_event *event;
    struct rdma_cm_id *id;
    struct sockaddr_in to = at(7174);
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval again = {.it_interval = {.tv_usec = 20000}, .it_value = {.tv_usec = 20000}}, never = {0};
    pthread_t thread;
    void *result;
    CHECK((channel = rdma_create_event_channel()));
    int flags = fcntl(channel->fd, F_GETFL);
    CHECK(!fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK));
    REFUSED(rdma_get_cm_event(channel, &event), EAGAIN);
    CHECK(!fcntl(channel->fd, F_SETFL, flags));

    CHECK(!sigaction(SIGALRM, &action, NULL) && !setitimer(ITIMER_REAL, &again, NULL));
    REFUSED(rdma_get_cm_event(channel, &event), EINTR);
    CHECK(!setitimer(ITIMER_REAL, &never, NULL));

    /* A thread is cancelled before it waits, and another one in its wait. */
    for (int sleeps = 0; sleeps < 2; sleeps++) {
        atomic_store(&waiting, 0);
        CHECK(!pthread_create(&thread, NULL, wait_event, NULL));
        if (sleeps) until_it_sleeps(&waiting);
        CHECK(!pthread_cancel(thread) && !pthread_join(thread, &result) && result == PTHREAD_CANCELED);
    }

    struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
    CHECK(poll(&ready, 1, 0) == 0);
    CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000));
    CHECK(poll(&ready, 1, 10000) == 1);
    event = next(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(event->id == id && event->status == 0 && poll(&ready, 1, 0) == 0);
    CHECK(!pthread_create(&thread, NULL, destroy, id));
    struct timespec while_it_waits = {.tv_nsec = 50000000};
    nanosleep(&while_it_waits, NULL);
    atomic_store(&acknowledged, 1);
    CHECK(!rdma_ack_cm_event(event));
    CHECK(!pthread_join(thread, NULL));
    rdma_destroy_event_channel(channel);

    /* As in the kernel, a wait does not end when another thread destroys the channel. */
    CHECK((channel = rdma_create_event_channel()));
    atomic_store(&waiting, 0);
    CHECK(!pthread_create(&thread, NULL, wait_event, NULL));
    until_it_sleeps(&waiting);
    rdma_destroy_event_channel(channel);
    nanosleep(&while_it_waits, NULL);
    CHECK(pthread_tryjoin_np(thread, &result) == EBUSY);
    puts("waited");
}
