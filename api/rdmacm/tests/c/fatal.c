/* The broker is killed: ids are told that their device is removed, and can end. Then channels and ids can be made
   anew. The argument is the broker's process. */
#include "sides.h"
#include <signal.h>

/* Two ids of this process find each other. */
static void meets(void) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    CHECK(channel);
    struct rdma_cm_id *listens = listener(channel, RDMA_PS_TCP);
    struct rdma_cm_id *asks = routed(channel, RDMA_PS_TCP, ntohs(rdma_get_src_port(listens)));
    make_qp(asks);
    struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
    CHECK(!rdma_connect(asks, &param));
    struct rdma_cm_event *event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *refuses = event->id;
    CHECK(!rdma_ack_cm_event(event) && !rdma_reject(refuses, NULL, 0));
    passes(channel, RDMA_CM_EVENT_REJECTED);
    rdma_destroy_qp(asks);
    CHECK(!rdma_destroy_id(refuses) && !rdma_destroy_id(asks) && !rdma_destroy_id(listens));
    rdma_destroy_event_channel(channel);
}

int main(int count, char **words) {
    CHECK(count == 2);
    meets();
    struct rdma_event_channel *channel = rdma_create_event_channel();
    CHECK(channel);
    struct rdma_cm_id *listens = listener(channel, RDMA_PS_TCP);
    CHECK(!kill(atoi(words[1]), SIGKILL));
    passes(channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
    struct rdma_cm_event *event;
    CHECK(rdma_get_cm_event(channel, &event) == -1 && errno == ENODEV);
    /* The device is one that the id has still. */
    CHECK(!rdma_create_event_channel());
    CHECK(!rdma_destroy_id(listens));
    rdma_destroy_event_channel(channel);
    meets();
    puts("anew");
}
