/* A channel is readable while it has an event to read: unread events go with an id that ends, and move with one
   that moves. Events of other ids stay in their order. */
#include "sides.h"
#include <poll.h>

static int readable(struct rdma_event_channel *channel, int ms) {
    struct pollfd entry = {.fd = channel->fd, .events = POLLIN};
    return poll(&entry, 1, ms);
}

/* Ids that have resolved an address, and whose event is unread. */
static void resolves(struct rdma_event_channel *channel, struct rdma_cm_id **ids, int count) {
    struct sockaddr_in to = at(7174);
    for (int i = 0; i < count; i++) {
        CHECK(!rdma_create_id(channel, &ids[i], NULL, RDMA_PS_TCP));
        CHECK(!rdma_resolve_addr(ids[i], NULL, (struct sockaddr *)&to, 2000));
    }
}

static void ends_with_its_id(struct rdma_event_channel *channel) {
    struct rdma_cm_id *ids[5];
    resolves(channel, ids, 1);
    CHECK(readable(channel, 2000) == 1 && !rdma_destroy_id(ids[0]) && readable(channel, 0) == 0);
    /* Of five ids two end: the first and one between others. */
    resolves(channel, ids, 5);
    CHECK(!rdma_destroy_id(ids[0]) && !rdma_destroy_id(ids[2]) && readable(channel, 0) == 1);
    for (int i = 1; i < 5; i++) {
        if (i == 2) continue;
        struct rdma_cm_event *event = next(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
        CHECK(event->id == ids[i] && !rdma_ack_cm_event(event) && !rdma_destroy_id(ids[i]));
    }
    CHECK(readable(channel, 0) == 0);
}

static void moves_with_its_id(struct rdma_event_channel *from, struct rdma_event_channel *to) {
    struct rdma_cm_id *ids[3];
    resolves(from, ids, 3);
    CHECK(!rdma_migrate_id(ids[1], to) && readable(to, 0) == 1);
    struct rdma_cm_event *event = next(to, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(event->id == ids[1] && !rdma_ack_cm_event(event) && readable(to, 0) == 0);
    /* Both that stayed have another event behind the first. */
    CHECK(!rdma_resolve_route(ids[0], 2000) && !rdma_resolve_route(ids[2], 2000));
    for (int i = 0; i < 4; i++) {
        event = next(from, i < 2 ? RDMA_CM_EVENT_ADDR_RESOLVED : RDMA_CM_EVENT_ROUTE_RESOLVED);
        CHECK(event->id == ids[i % 2 * 2] && !rdma_ack_cm_event(event));
    }
    CHECK(readable(from, 0) == 0);
    /* There and back, and away with it. */
    CHECK(!rdma_resolve_route(ids[1], 2000) && !rdma_migrate_id(ids[1], from) && readable(to, 0) == 0);
    CHECK(!rdma_migrate_id(ids[1], to) && readable(from, 0) == 0 && readable(to, 0) == 1);
    CHECK(!rdma_destroy_id(ids[1]) && readable(to, 0) == 0);
    CHECK(!rdma_destroy_id(ids[0]) && !rdma_destroy_id(ids[2]));
}

static void of_a_listener(struct rdma_event_channel *first, struct rdma_event_channel *second) {
    /* A request that waits when its listener moves is read at the new channel, and is refused when it ends. */
    for (int ends = 0; ends < 2; ends++) {
        struct rdma_cm_id *listens = listener(first, RDMA_PS_TCP);
        struct rdma_cm_id *asks = routed(second, RDMA_PS_TCP, ntohs(rdma_get_src_port(listens)));
        struct rdma_event_channel *third = rdma_create_event_channel();
        make_qp(asks);
        CHECK(!rdma_connect(asks, NULL) && readable(first, 5000) == 1);
        CHECK(!rdma_migrate_id(listens, third) && readable(first, 0) == 0 && readable(third, 0) == 1);
        if (ends) {
            CHECK(!rdma_destroy_id(listens) && readable(third, 0) == 0);
            passes(second, RDMA_CM_EVENT_REJECTED);
        } else {
            struct rdma_cm_event *event = next(third, RDMA_CM_EVENT_CONNECT_REQUEST);
            struct rdma_cm_id *accepts = event->id;
            CHECK(event->listen_id == listens && accepts->channel == third && !rdma_ack_cm_event(event));
            make_qp(accepts);
            CHECK(!rdma_accept(accepts, NULL));
            passes(second, RDMA_CM_EVENT_ESTABLISHED);
            passes(third, RDMA_CM_EVENT_ESTABLISHED);
            CHECK(!rdma_disconnect(asks) && readable(third, 5000) == 1);
            rdma_destroy_qp(accepts);
            CHECK(!rdma_destroy_id(accepts) && readable(third, 0) == 0 && !rdma_destroy_id(listens));
        }
        rdma_destroy_qp(asks);
        CHECK(!rdma_destroy_id(asks));
        rdma_destroy_event_channel(third);
    }
    CHECK(readable(first, 0) == 0);
}

int main(void) {
    struct rdma_event_channel *first = rdma_create_event_channel(), *second = rdma_create_event_channel();
    CHECK(first && second);
    ends_with_its_id(first);
    moves_with_its_id(first, second);
    of_a_listener(first, second);
    rdma_destroy_event_channel(first);
    rdma_destroy_event_channel(second);
    puts("readable");
}
