/* Ids move to another channel, also with an event that waits. A child of fork finds inert what it
   inherited. */
#include "sides.h"
#include <sys/wait.h>

static void child(struct rdma_event_channel *inherited, struct rdma_cm_id *id) {
    struct rdma_cm_id *own;
    struct sockaddr_in to = at(7174);
    REFUSED(rdma_create_id(inherited, &own, NULL, RDMA_PS_TCP), EINVAL);
    REFUSED(rdma_listen(id, 1), EINVAL);
    struct rdma_event_channel *channel = rdma_create_event_channel();
    CHECK(channel && channel->fd != inherited->fd);
    CHECK(!rdma_create_id(channel, &own, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(own, NULL, (struct sockaddr *)&to, 2000));
    passes(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    REFUSED(rdma_migrate_id(own, inherited), EINVAL);
    CHECK(!rdma_destroy_id(own) && !rdma_destroy_id(id));
    exit(0);
}

int main(void) {
    struct rdma_event_channel *first = rdma_create_event_channel(), *second = rdma_create_event_channel();
    struct rdma_cm_id *id, *asks, *listens, *accepts;
    struct rdma_cm_event *event;
    struct sockaddr_in to = at(7174);
    int status;
    CHECK(first && second);
    CHECK(!rdma_create_id(first, &id, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000));
    CHECK(!rdma_migrate_id(id, second) && id->channel == second);
    /* The event was sent to the first channel, and is told by the second. */
    CHECK(!rdma_create_id(first, &asks, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(asks, NULL, (struct sockaddr *)&to, 2000));
    event = next(first, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(event->id == asks && !rdma_ack_cm_event(event));
    event = next(second, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(event->id == id && !rdma_ack_cm_event(event));
    CHECK(!rdma_destroy_id(asks));

    pid_t one = fork();
    CHECK(one >= 0);
    if (one == 0) child(second, id);
    CHECK(waitpid(one, &status, 0) == one && status == 0);
    CHECK(!rdma_resolve_route(id, 2000));
    passes(second, RDMA_CM_EVENT_ROUTE_RESOLVED);

    /* A request of a listener on one channel is served on another. */
    listens = listener(first, RDMA_PS_TCP);
    asks = routed(second, RDMA_PS_TCP, ntohs(rdma_get_src_port(listens)));
    make_qp(asks);
    CHECK(!rdma_connect(asks, NULL));
    event = next(first, RDMA_CM_EVENT_CONNECT_REQUEST);
    accepts = event->id;
    CHECK(event->listen_id == listens && accepts->context == listens->context && accepts->verbs);
    CHECK(event->param.conn.qp_num == asks->qp->qp_num && event->param.conn.private_data_len == 56);
    CHECK(rdma_get_dst_port(accepts) == rdma_get_src_port(asks) && !rdma_ack_cm_event(event));
    make_qp(accepts);
    CHECK(!rdma_migrate_id(accepts, second));
    struct rdma_conn_param param = {.private_data = "yes", .private_data_len = 3};
    CHECK(!rdma_accept(accepts, &param));
    event = next(second, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(event->id == asks && event->param.conn.private_data_len == 196);
    CHECK(!memcmp(event->param.conn.private_data, "yes", 4) && !rdma_ack_cm_event(event));
    event = next(second, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(event->id == accepts && !rdma_ack_cm_event(event));
    rdma_destroy_qp(accepts);
    rdma_destroy_qp(asks);
    CHECK(!rdma_destroy_id(accepts) && !rdma_destroy_id(asks));
    CHECK(!rdma_destroy_id(listens) && !rdma_destroy_id(id));
    rdma_destroy_event_channel(first);
    rdma_destroy_event_channel(second);
    puts("moved");
}
