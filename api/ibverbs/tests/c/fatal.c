/* The broker is killed while the program works: waits end, posts are EIO, and all objects can end. Then the device
   can be opened again. The argument is the broker's process. */
#include "loopback.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

static struct loopback one;
static atomic_int done;

static int take(void) {
    struct ibv_wc wc[16];
    int count = ibv_poll_cq(one.cq, 16, wc);
    for (int at = 0; at < count; at++) {
        CHECK(wc[at].status == IBV_WC_SUCCESS || wc[at].status == IBV_WC_WR_FLUSH_ERR);
        if (wc[at].status == IBV_WC_SUCCESS) atomic_fetch_add(&done, 1);
    }
    return count;
}

static void *work(void *none) {
    int refused;
    while ((refused = post_write(&one, 0, 1, 0, 512)) != EIO) {
        CHECK(refused == 0 || refused == ENOMEM);
        take();
    }
    return none;
}

static void *completions(void *none) {
    struct ibv_cq *cq;
    void *context;
    for (;;) {
        CHECK(!ibv_req_notify_cq(one.cq, 0));
        CHECK(!ibv_get_cq_event(one.channel, &cq, &context));
        ibv_ack_cq_events(cq, 1);
    }
    return none;
}

static void *events(void *none) {
    struct ibv_async_event event;
    do {
        CHECK(!ibv_get_async_event(one.context, &event));
        ibv_ack_async_event(&event);
    } while (event.event_type != IBV_EVENT_DEVICE_FATAL);
    return none;
}

int main(int count, char **words) {
    pthread_t worker, waiter, reader;
    CHECK(count == 2);
    one = loopback();
    CHECK(!pthread_create(&worker, NULL, work, NULL) && !pthread_create(&waiter, NULL, completions, NULL));
    CHECK(!pthread_create(&reader, NULL, events, NULL));
    while (atomic_load(&done) < 1000) {
    }
    CHECK(!kill(atoi(words[1]), SIGKILL));
    CHECK(!pthread_join(reader, NULL) && !pthread_join(worker, NULL));
    CHECK(!pthread_cancel(waiter) && !pthread_join(waiter, NULL));
    struct ibv_recv_wr receive = {.wr_id = 9}, *bad;
    CHECK(ibv_post_recv(one.qp[1], &receive, &bad) == EIO && bad == &receive);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(!ibv_query_qp(one.qp[0], &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_ERR);
    while (take() > 0) {
    }
    struct ibv_wc none;
    CHECK(ibv_poll_cq(one.cq, 1, &none) < 0);
    end(&one);
    /* Another broker is started, and the device works again. */
    one = loopback();
    CHECK(!post_write(&one, 0, 2, 0, 512) && wait_one(&one).status == IBV_WC_SUCCESS);
    end(&one);
    puts("failed");
}
